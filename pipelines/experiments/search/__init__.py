"""The search for drop predictors by their scores and their costs."""
