"""Searches: for drop predictors by their scores and costs, for sharing rules and for alphas by their cost J."""
