"""Throughput of schedules on demand matrices, and what a wrong prediction of them costs."""
