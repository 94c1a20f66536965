"""Training a drop predictor: rows, labels, objective, and what it scores."""
