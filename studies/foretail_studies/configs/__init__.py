"""Config groups of studies; the `hydra.searchpath` of every experiment names it."""
