"""Settings: composed by Hydra, checked in their ranges and against each other."""
