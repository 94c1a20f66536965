"""Policies on arrivals that are known beforehand: in slots, and replays in bytes."""
