"""Benchmarks: alternatives compared within one run; the ratios are the result."""
