"""The native network: simulated hosts with Foretail's own TCP, over its links and switches."""
