"""The ns-3 driver: its C++ sources, how it is built and run, and how a run becomes a dataset."""
