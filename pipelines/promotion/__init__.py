"""The gate in front of champion and challenger, and the model card."""
