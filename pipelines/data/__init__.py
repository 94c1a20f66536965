"""Where rows come from: simulations, workloads, imports, and datasets that are given."""
