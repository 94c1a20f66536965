"""Other people's traces: the packet logs of the Etalon emulator, the training rows of the public Credence artifact."""
