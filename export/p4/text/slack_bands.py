"""Strict priorities by slack as a P4_16 control: the bands of :class:`foretail.sim_bridge.schedulers.network.Bands`.

A switch of P4 has no queue that is sorted by a key. The control finds the highest bit of the slack by a ternary table.
Slack is in two's complement, so a packet that is late matches no entry and goes to band 0.
"""

from __future__ import annotations

from foretail.export.templates import environment
from foretail.sim_bridge.schedulers.network import Bands

SLACK_BITS = 48
"""As the time stamps of v1model; one is the sign."""


def slack_bands(bands: Bands) -> str:
    """Return the P4 text of the bands."""
    whole = (1 << SLACK_BITS) - 1
    entries = [
        (1 << bit, whole ^ ((1 << bit) - 1), min(bit - bands.shift + 1, bands.count - 1))
        for bit in range(bands.shift, SLACK_BITS - 1)
    ]
    return (
        environment("foretail.export.p4.text")
        .get_template("slack_bands.p4.j2")
        .render(count=bands.count, entries=entries)
    )
