"""Codes on a lossy link: formulas against their sums, any k packets of n, and a simulated path; costs five seconds."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail_studies.engines.erasure_codes import CodedLink, LossyPath, best_code, run_path
from tests.examples import draws


def summed_residual_loss(erasure: float, k: int, n: int) -> float:
    """The double sum of equation 3.1, over losses of the block and of its data."""
    return (
        sum(
            erasure**q * (1 - erasure) ** (n - q) * c * comb(k, c) * comb(n - k, q - c)
            for q in range(n - k + 1, n + 1)
            for c in range(q - (n - k), min(k, q) + 1)
        )
        / k
    )


@settings(max_examples=draws(60))
@given(st.floats(0, 0.9), st.integers(1, 20), st.integers(0, 12))
def test_the_residual_loss_is_its_double_sum(erasure: float, k: int, coded: int) -> None:
    assert CodedLink(erasure, k, k + coded).residual_loss == pytest.approx(
        summed_residual_loss(erasure, k, k + coded), rel=1e-9, abs=1e-12
    )


def test_loads_count_every_link_of_every_sender() -> None:
    """By hand: half of all packets are lost, so each is sent twice."""
    plain = CodedLink(0.5)
    assert plain.lossy_load([1.0, 2.0]) == pytest.approx(6)
    assert plain.other_load([1.0, 2.0], [4, 1]) == pytest.approx(2 * (4 + 2))
    assert plain.goodput_ratio([1.0, 2.0], [4, 1]) == pytest.approx(1)
    twice = CodedLink(0.5, 1, 2)  # every packet twice: a quarter is lost
    assert twice.residual_loss == pytest.approx(1 / 4)
    assert twice.goodput_ratio([1.0, 2.0], [4, 1]) == pytest.approx((6 + 12) / (8 + 8))


def test_the_best_code_is_that_of_a_full_search_and_grows_with_its_bound() -> None:
    every = [CodedLink(0.1, k, n) for k in range(1, 13) for n in range(k, 3 * k + 1)]
    best = max(every, key=lambda link: link.goodput_ratio([1.0], [4]))
    assert best_code(0.1, 4, 1, 12) == best
    assert best_code(0.1, 4, 1, 200).k == 200
    assert best_code(0.0, 4, 1, 5) == CodedLink(0.0, 1, 1)


@pytest.mark.parametrize(("erasure", "less"), [(0.1, 0.1818), (0.05, 0.0952), (0.01, 0.0198)])
def test_a_code_that_restores_all_cuts_delay_by_2e_over_1_plus_e(erasure: float, less: float) -> None:
    whole = CodedLink(erasure, 50, 100)
    assert 1 - whole.mean_delay / CodedLink(erasure).mean_delay == pytest.approx(2 * erasure / (1 + erasure), abs=1e-9)
    assert 2 * erasure / (1 + erasure) == pytest.approx(less, abs=5e-5)


@pytest.mark.parametrize(("erasure", "n"), [(0.05, 50), (0.05, 55), (0.1, 52), (0.1, 60)])
def test_a_simulated_path_is_as_computed(erasure: float, n: int) -> None:
    link = CodedLink(erasure, 50, n)
    path = LossyPath(link)
    round_trip = 2 * (path.other_links + 1) * (path.latency + 1)
    counts = run_path(path, 20_000, seed=3)
    # blocks, not packets, are independent: an interval of four deviations of their mean
    wide = 4 * np.sqrt(erasure * n / 20_000)
    assert counts.residual_loss == pytest.approx(link.residual_loss, abs=wide)
    assert counts.lossy_load == pytest.approx(link.lossy_load([1.0]), abs=2 * wide)
    assert counts.other_load == pytest.approx(link.other_load([1.0], [1]), abs=2 * wide)
    assert counts.mean_delay / round_trip == pytest.approx(link.mean_delay, abs=2 * wide)
    assert (counts.restored == 0) == (n == 50)


def test_links_without_loss_are_a_queue_with_one_service_time() -> None:
    """M/D/1: a packet waits load / (2 (1 - load)) on the first link, and nowhere behind it."""
    path = LossyPath(CodedLink(0.0), other_links=2, latency=10, load=0.6)
    counts = run_path(path, 60_000, seed=1)
    assert counts.mean_delay == pytest.approx((2 * 3 * 11) / 2 + 0.6 / 0.8, rel=0.002)
    assert (counts.residual_loss, counts.lossy_load, counts.restored) == (0, 1, 0)
