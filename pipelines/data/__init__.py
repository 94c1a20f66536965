"""Sources of rows: simulations, workloads, imports, and datasets that are given."""
