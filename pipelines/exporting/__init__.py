"""Exports: a predictor proven and written, or its library from the store."""
