"""Jobs of tasks that depend on each other, on servers that share a link."""
