"""What the simulators of packets share, ns-3 and the emulator: settings, flows, the switch, what a run leaves."""
