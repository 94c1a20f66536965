"""Experiments: sweeps whose points are measured once, kept, tabled and drawn."""
