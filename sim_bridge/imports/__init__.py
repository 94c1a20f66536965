"""Other people's traces: packet captures, logs of the Etalon emulator, rows of the public Credence artifact."""
