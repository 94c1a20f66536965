"""Passes over the ensemble: each returns the same function with fewer nodes, or in integers."""
