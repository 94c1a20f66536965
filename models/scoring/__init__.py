"""Scores of predictions, and the operating point."""
