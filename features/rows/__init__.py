"""Labelled rows of datasets as arrays: read, and split by run or time."""
