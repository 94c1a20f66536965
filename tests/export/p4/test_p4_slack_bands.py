"""The bands of slack that P4 computes are those of the network."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.p4.text.slack_bands import SLACK_BITS, slack_bands
from foretail.sim_bridge.schedulers.network import Bands
from tests.sim_bridge.slow_models.schedulers import slow_band

ENTRY = re.compile(r"0x([0-9a-f]+) &&& 0x([0-9a-f]+) : choose\((\d+)\);")


def band_of(text: str, slack_ns: int) -> int:
    """What the table says, as one would read it: every entry that matches, of which there is at most one."""
    pattern = slack_ns % (1 << SLACK_BITS)
    rows = [(int(value, 16), int(mask, 16), int(band)) for value, mask, band in ENTRY.findall(text)]
    matches = [band for value, mask, band in rows if pattern & mask == value & mask]
    assert len(matches) <= 1
    return matches[0] if matches else 0


@given(st.integers(1, 64), st.integers(0, 40), st.lists(st.integers(-(2**47), 2**47 - 1), min_size=1))
def test_the_text_has_the_bands_of_the_network(count: int, shift: int, slack: list[int]) -> None:
    text = slack_bands(Bands(count, shift))
    edges = [1 << bit for bit in range(shift, 47)]
    values = [*slack, *edges, *(edge - 1 for edge in edges), 0, -1]
    assert [band_of(text, value) for value in values] == [slow_band(value, count, shift) for value in values]


def test_slack_falls_by_what_a_packet_waits() -> None:
    assert "slack = slack - waited;" in slack_bands(Bands())


def test_no_bands_are_refused() -> None:
    with pytest.raises(ForetailError, match="1 to 64"):
        Bands(0)
    with pytest.raises(ForetailError, match="0 to 46"):
        Bands(8, 47)
