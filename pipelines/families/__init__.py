"""Policies with their settings under families of conditions, judged by the cost J."""
