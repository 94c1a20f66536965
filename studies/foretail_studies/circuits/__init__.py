"""Experiments on schedules of circuits."""
