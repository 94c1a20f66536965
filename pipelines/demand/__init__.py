"""Demand predictors: the runs they learn from, and what the schedules of their predictions are worth."""
