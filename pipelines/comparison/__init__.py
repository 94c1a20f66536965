"""Policies on the same packets: flows in a network, slotted arrivals, recorded datasets; means and intervals."""
