"""Sirona, a load balancer of senders, as a C header for simulators and network cards."""

from __future__ import annotations

import re

from foretail.core.errors import ForetailError
from foretail.export.templates import environment

MOST_SUBFLOWS = 1024


def sirona_header(subflows: int, interval_ns: int, last_share: float, name: str = "sirona") -> str:
    """Return the header of a sender that spreads a flow over subflows and gives the worst one another way.

    Its state are `subflows` + 2 words of 32 bits: the entropies, and the worst round trip with its subflow (section
    4.3.3 of Pit-Claudel's thesis). RSS keeps three words for each subflow.

    Parameters
    ----------
    subflows : 1 to MOST_SUBFLOWS
    interval_ns : time between two changes of a way, 1 to 2^32 - 1
    last_share : part of the interval, above 0 and at most 1, in which round trips count
    name : prefix of all that the header defines, a C identifier

    ForetailError on anything else.
    """
    if not 1 <= subflows <= MOST_SUBFLOWS:
        raise ForetailError(f"subflows = {subflows} is out of range: give 1 to {MOST_SUBFLOWS}")
    if not 1 <= interval_ns < 2**32:
        raise ForetailError(f"interval_ns = {interval_ns} is out of range: give 1 to 2^32 - 1")
    if not 0 < last_share <= 1:
        raise ForetailError(f"last_share = {last_share:g} is out of range: give a number above 0 and at most 1")
    if not re.fullmatch("[a-z_][a-z0-9_]*", name, re.ASCII):
        raise ForetailError(f"name = {name} is no C identifier in lower case: use letters, digits and _")
    template = environment("foretail.export.balancing").get_template("sirona.h.j2")
    return template.render(
        n=name, N=name.upper(), subflows=subflows, interval_ns=interval_ns, last_ns=int(last_share * interval_ns)
    )
