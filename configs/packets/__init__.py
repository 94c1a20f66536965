"""Config groups of the stages that simulate packets; their `hydra.searchpath` names it."""
