"""Exports: passes over the ensemble IR, proofs of equivalence, and code for simulators and switches."""
