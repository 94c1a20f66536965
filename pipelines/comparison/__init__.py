"""Policies on the same packets: flows in ns-3, slotted arrivals, recorded datasets; means and intervals."""
