"""What leaves: texts of C and P4 and bytes of ONNX, of ensembles and demand predictors whose numbers are drawn.

Certificates are left out: they name compilers, versions and what a proof took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from foretail.export.c.target import render_c
from foretail.export.demand import TARGETS
from foretail.export.demand.c_code import fixed_point, render_header
from foretail.export.demand.onnx_graph import render_graph
from foretail.export.onnx.graph import render_onnx
from foretail.export.p4.encoding import DECISIONS
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.rows import KINDS
from foretail.export.p4.text import render_p4
from foretail.export.passes import lower
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.averages import LastValue, MovingAverage, Seasonal
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import from_json, name_of, to_json
from foretail.models.demand.regression import LinearEntries, LowRank
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.testing import synthetic_sequences
from tests.export.p4.p4_texts import small_ensemble
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.drawn import drawn_ensemble, redrawn
from tests.fingerprints.place import Place
from tests.forests import PAPER_INPUTS, stumps

STORED = Path(__file__).parents[1] / "models" / "ensemble" / "ensemble_v1.json"


def ensembles() -> dict[str, Ensemble]:
    """Return ensembles by name, all without training."""
    narrow = [FeatureInput(f"f{i}", "", bits) for i, bits in enumerate((4, 6, 3))]
    return {
        "paper": drawn_ensemble(PAPER_INPUTS, seed=1),
        "deep": drawn_ensemble(PAPER_INPUTS, seed=2, trees=8, depth=6, narrow=9),
        "narrow": drawn_ensemble(narrow, seed=3, trees=2, depth=3),
        "stumps": stumps((0.25, 0.75), (-1.0, 2.0)),
        "small": small_ensemble(),
        "stored": Ensemble.load(STORED),
    }


def lowered(place: Place) -> Iterator[Fingerprint]:
    for name, ensemble in ensembles().items():
        found = lower(ensemble).ensemble
        yield Fingerprint("json", parameters_text(ensemble=name), fingerprint(ensemble.to_json()))
        yield Fingerprint("lowered", parameters_text(ensemble=name), fingerprint(found.to_json()))
        bits = [feature.bits for feature in found.features]
        rows = np.random.default_rng(1).integers(0, [1 << b for b in bits], (2000, len(bits)))
        yield Fingerprint("scores", parameters_text(ensemble=name), fingerprint(found.score(rows), found.default_tau))


def in_c(place: Place) -> Iterator[Fingerprint]:
    for name, ensemble in ensembles().items():
        found = lower(ensemble).ensemble
        for shape, batch in product(("branches", "bitvector"), ("rows", "lanes")):
            texts = render_c(found, "p", shape=shape, batch=batch)  # type: ignore[arg-type]
            yield Fingerprint("texts", parameters_text(ensemble=name, shape=shape, batch=batch), fingerprint(texts))


def in_p4(place: Place) -> Iterator[Fingerprint]:
    for name in ("narrow", "small"):
        found = lower(ensembles()[name]).ensemble
        for decision, encoding in product(DECISIONS, KINDS):
            texts = render_p4(found, plan(found, load_profile("v1model"), encoding, decision).tables, "p")
            yield Fingerprint(
                "texts", parameters_text(ensemble=name, decision=decision, encoding=encoding), fingerprint(texts)
            )
    for name, profile in product(("paper", "stored", "stumps"), ("v1model", "tofino")):
        found = lower(ensembles()[name]).ensemble
        texts = render_p4(found, plan(found, load_profile(profile)).tables, "p", True)
        yield Fingerprint(
            "texts", parameters_text(ensemble=name, profile=profile, entries="runtime"), fingerprint(texts)
        )


def in_onnx(place: Place) -> Iterator[Fingerprint]:
    for name, ensemble in ensembles().items():
        yield Fingerprint(
            "bytes", parameters_text(ensemble=name), fingerprint(render_onnx(lower(ensemble).ensemble, "p"))
        )


def drawn_demand(predictor: DemandPredictor) -> DemandPredictor:
    """Return the predictor of 3 nodes with drawn numbers; fitted before, for the shape of what it learns."""
    runs = synthetic_sequences(3, 10, 3, 1)
    document = json.loads(to_json(predictor.fit(runs)))
    document["learned"] = redrawn(document["learned"], np.random.default_rng(1))
    return from_json(json.dumps(document))


def demand(place: Place) -> Iterator[Fingerprint]:
    """Of the predictors but boosted trees, which only XGBoost can make."""
    for predictor in (
        LastValue(),
        MovingAverage(3),
        Seasonal(3),
        LinearEntries(2),
        LinearEntries(3, shared=True),
        LowRank(2, 2),
        HistoryAttention(steps=1),
    ):
        drawn = drawn_demand(predictor)
        parameters = parameters_text(predictor=name_of(drawn), **predictor.parameters())
        yield Fingerprint("json", parameters, fingerprint(to_json(drawn)))
        for target in TARGETS.get(name_of(drawn), ()):
            if target == "c":
                texts = render_header(fixed_point(drawn, 1e-2, 16.0), name_of(drawn), "p")
                yield Fingerprint("c", parameters, fingerprint(texts))
            else:
                yield Fingerprint(target, parameters, fingerprint(render_graph(drawn, "p")))


GROUPS = (
    Group("exports", "ensembles", lowered),
    Group("exports", "c", in_c),
    Group("exports", "p4", in_p4),
    Group("exports", "onnx", in_onnx),
    Group("exports", "demand", demand),
)
