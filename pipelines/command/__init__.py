"""Descriptions that the command prints: help, completion of words, and what this machine has."""
