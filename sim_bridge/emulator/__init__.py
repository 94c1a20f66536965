"""Emulated networks: TCP of this machine's kernel in namespaces, through the switch of the buffer library."""
