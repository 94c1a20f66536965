"""Parts that every run needs: the store, jobs, progress and results."""
