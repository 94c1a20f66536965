"""Parts that the simulators of packets share: settings, flows, the switch, what a run leaves."""
