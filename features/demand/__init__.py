"""Demand matrices: one, a sequence of them, and the files that hold them."""
