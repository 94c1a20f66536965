"""Labelled rows of datasets as arrays: read, split by run or time, and with their neighbours."""
