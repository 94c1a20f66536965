"""Comparisons of policies in a network, as ``foretail evaluate`` makes them, with settings of their own."""
