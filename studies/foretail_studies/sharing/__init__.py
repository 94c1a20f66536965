"""Conditions in which a sharing rule matters: policies with all their settings, judged by cost."""
