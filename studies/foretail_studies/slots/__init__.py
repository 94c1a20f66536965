"""Experiments on generated arrivals in the slotted model."""
