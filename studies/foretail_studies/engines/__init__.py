"""Simulators, bounds and statistics that only studies use."""
