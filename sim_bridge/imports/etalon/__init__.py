"""Packet logs of the Etalon emulator."""
