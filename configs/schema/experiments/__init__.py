"""Settings of experiments, searches and studies: what they vary, and where they look."""
