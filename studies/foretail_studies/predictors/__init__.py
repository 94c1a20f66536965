"""Drop predictors on runs and conditions that they never saw, and by their size."""
