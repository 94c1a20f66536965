"""The C target: nested comparisons or bitvectors, a library around them, and their text read back."""
