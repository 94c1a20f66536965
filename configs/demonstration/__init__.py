"""Config groups of the demo; its `hydra.searchpath` names it."""
