"""Policies with their settings under families of conditions in ns-3, judged by the cost J."""
