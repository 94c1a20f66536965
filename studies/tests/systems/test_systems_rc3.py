"""RC3 in the table of systems: half a minute."""

from __future__ import annotations

import pytest

from foretail.core.errors import ForetailError
from foretail_studies.systems.scheduling import DEFAULT, RC3


@pytest.mark.nightly
def test_it_measures_what_is_published() -> None:
    measured = RC3.measure("small", 1, lambda words: None)
    assert {figure.quantity for figure in RC3.published} <= set(measured)
    assert measured["unfinished flows"] == 0
    assert measured["mean FCT in s, RC3"] < measured["mean FCT in s, TCP"]
    changes = [value for name, value in measured.items() if name.startswith("change of mean FCT by bytes in %, ")]
    assert min(changes) < -50


def test_load_is_what_a_scene_says() -> None:
    hosts, flows = DEFAULT.draw("medium", 1)
    bits = hosts.load_of(flows.route, flows.size_bytes)[hosts.core] / hosts.network.rate_bps[hosts.core]
    assert 1e9 * bits.mean() / flows.start_ns[-1] == pytest.approx(DEFAULT.load, rel=0.01)
    between = hosts.round_trip_ns(flows.source, flows.destination)
    assert between.mean() == pytest.approx(DEFAULT.round_trip_ns, rel=0.02)


def test_it_refuses_another_size() -> None:
    with pytest.raises(ForetailError, match="no size full"):
        RC3.measure("full", 1, lambda words: None)
