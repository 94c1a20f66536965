"""What drops cost, measured by branches of runs, and trees that learn it."""
