"""The P4 target: match-action tables for v1model or TNA, planned by cost, read back from their text and proven."""
