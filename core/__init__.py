"""What every room uses: the one error, files that appear whole, digests, JSON and plug-ins. It imports no room."""
