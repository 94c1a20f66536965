"""Costs of drops, measured by branches of runs, and trees that learn them."""
