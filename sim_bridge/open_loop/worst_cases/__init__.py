"""Short arrival sequences on which a policy, or a published claim about it, does badly."""
