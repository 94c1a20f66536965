"""What a drop costs, measured by branches of runs, and rules that learn it."""
