"""Experiments on flows that react to drops."""
