"""The groups of a scenario: queues, transports, balancers, circuits, and where traffic comes from."""
