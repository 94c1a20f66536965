"""Learned models: drop predictors, the ensemble IR they lower to, metrics, operating points, tracking."""
