"""Demand matrices of the evaluations, and sequences of them."""
