"""Parts that every room uses: the one error, files that appear whole, digests, JSON, plug-ins. It imports no room."""
