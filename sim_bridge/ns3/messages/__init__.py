"""Traffic that a run's settings name message by message: bursts of elephants, collectives."""
