"""Drop predictors on runs and conditions that they never saw."""
