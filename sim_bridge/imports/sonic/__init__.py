"""The buffers of a SONiC switch: its ``config_db.json`` read, checked, simulated, and written with other thresholds."""
