"""The proof: what it accepts holds on every cell, and what differs from its model anywhere is caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.export.c.target import C, render_c
from foretail.export.folder import encoded
from foretail.export.passes import with_votes
from foretail.export.proof import Certificate, ProofError
from foretail.export.target import prove_files
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble
from tests.forests import paper_forest, stumps


@pytest.fixture(scope="module")
def voted() -> Ensemble:
    return with_votes(paper_forest(trees=2, depth=3).ensemble)


def test_a_certificate_states_what_was_proven(voted: Ensemble, tmp_path: Path) -> None:
    certificate = prove_files(voted, C(), encoded(render_c(voted, batch="rows")))[0]
    assert certificate.method == "cells"
    assert certificate.order
    assert certificate.taus is None
    assert certificate.default_tau == voted.default_tau
    assert (certificate.float_decides_otherwise or 0) <= (certificate.float_within_rounding or 0)
    assert set(certificate.outputs) == {
        "drop_predictor.h",
        "drop_predictor.c",
        "drop_predictor_selftest.c",
        "drop_predictor.so",
    }
    (tmp_path / "c.json").write_text(certificate.to_json())
    assert Certificate.load(tmp_path / "c.json") == certificate
    certificate.check_tau(12345)
    with pytest.raises(ForetailError, match=r"p4\.json is not a certificate of version 2"):
        Certificate.load(tmp_path / "p4.json")
    for version in (1, 3):
        (tmp_path / "c.json").write_text(certificate.to_json().replace('"version": 2', f'"version": {version}'))
        with pytest.raises(ForetailError, match="is not a certificate of version 2"):
            Certificate.load(tmp_path / "c.json")


def test_a_wrong_tau_in_the_model_is_caught(voted: Ensemble, tmp_path: Path) -> None:
    scores = sorted({int(s) for points in Cells.of(voted).batches() for s in voted.score(points)})
    wrong = replace(voted, default_tau=scores[-1])
    with pytest.raises(ProofError, match="is not exact sum >"):
        prove_files(wrong, C(), encoded(render_c(wrong)))


def test_without_order_only_the_listed_tau_is_allowed(tmp_path: Path) -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 2.0**-70]))
    certificate = prove_files(voted, C(), encoded(render_c(voted, batch="rows")))[0]
    assert not certificate.order
    assert certificate.taus == [voted.default_tau]
    certificate.check_tau(certificate.default_tau)
    with pytest.raises(ForetailError, match="does not cover tau"):
        certificate.check_tau(certificate.default_tau + 1)


def test_cells_where_floats_decide_otherwise_are_counted_and_listed(tmp_path: Path) -> None:
    # (0.1 + 0.2) + 0.3 is 0.6000000000000001 in float64, above the exact sum of the three.
    total = Fraction(0.1) + Fraction(0.2) + Fraction(0.3)
    ensemble = stumps([0.0, 0.1], [0.0, 0.2], [0.0, 0.3], threshold=total)
    voted = with_votes(ensemble)
    certificate = prove_files(voted, C(), encoded(render_c(voted, batch="rows")))[0]
    assert certificate.float_decides_otherwise == 1
    assert certificate.float_inputs == [[255, 255, 255]]
    assert certificate.float_within_rounding == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "foretail.certificate", "version": 2}', "\xff", "[" * 100_000]
)
def test_malformed_certificates_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text, encoding="latin-1")
    with pytest.raises(ForetailError, match="not a certificate"):
        Certificate.load(tmp_path / "c.json")
