"""Schedules of circuits: Vermilion and those that it is compared to."""
