"""Codes between two switches that repair a link which loses packets."""
