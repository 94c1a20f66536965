"""The P4 text of a plan, and the part of P4 that it uses."""
