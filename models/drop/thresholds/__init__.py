"""Thresholds as models: their numbers are searched or follow gradients, and trees learn them or their alphas."""
