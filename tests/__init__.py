"""A regular package, so that no other `tests` on the path is taken for it: the install adds this folder's parent."""
