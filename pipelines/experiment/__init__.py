"""The engine of experiments: what one declares, and how it is measured, shown, tracked and written."""
