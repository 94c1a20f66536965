"""Tools that compile and run P4, where they are on PATH."""
