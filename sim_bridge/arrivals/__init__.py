"""Arrivals in slots: from files, from random sources, from proofs and collectives."""
