"""Hydra configuration of Foretail: structured schemas (``schema``) and the YAML groups beside them."""
