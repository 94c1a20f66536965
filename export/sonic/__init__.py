"""Predicted alphas for switches of today: SONiC buffer profiles, writes to a P4 register, and the rules that choose."""
