"""Config groups of the stage on demand matrices; its `hydra.searchpath` names it."""
