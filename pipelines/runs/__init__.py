"""Parts that every run needs: the store, jobs on one or several machines, progress and results."""
