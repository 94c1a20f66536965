"""Predictors of the next demand matrix, from the matrices of the past, and their scores."""
