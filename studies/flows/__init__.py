"""Experiments on flows in ns-3."""
