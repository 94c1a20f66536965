"""A running switch, reached by P4Runtime: models are put into the banks of its program, and swapped."""
