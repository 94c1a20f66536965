"""One page of a run or a sweep."""
