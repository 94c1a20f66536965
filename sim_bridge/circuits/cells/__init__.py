"""Flows over a schedule of circuits, cell by cell."""
