"""Scores of predictions, the operating point, and calibrated probabilities."""
