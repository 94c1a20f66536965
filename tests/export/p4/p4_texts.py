"""What the tests of the P4 target share: an ensemble small enough to try every input, and its texts."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.reading import TableScore, read_p4
from foretail.export.p4.text import render_p4
from foretail.export.passes import lower
from foretail.export.proof import Certificate, ReadBack, prove
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree
from tests.forests import stump


def small_ensemble(stumps: int = 1) -> Ensemble:
    """A tree and stumps over two inputs of 3 bits, negative votes among them: all 64 inputs can be tried."""
    deep = Tree(
        feature=np.array([0, 1, -1, -1, 1, -1, 0, -1, -1], np.int32),
        cut=np.array([3, 4, 0, 0, 1, 0, 5, 0, 0]),
        left=np.array([1, 2, -1, -1, 5, -1, 7, -1, -1], np.int32),
        right=np.array([4, 3, -1, -1, 6, -1, 8, -1, -1], np.int32),
        value=np.array([0, 0, 0.25, 1.5, 0, -0.75, 0, 0.25, 2.0]),
    )
    features = tuple(FeatureInput(name, "", 3) for name in ("queue", "table"))
    others = [stump([-0.5, 0.75 + i], cut=(2 + i) % 6, feature=(1 + i) % 2) for i in range(stumps)]
    ensemble = Ensemble(features, (deep, *others), Fraction(1, 2), output="logit")
    return lower(ensemble).ensemble


def everything(ensemble: Ensemble) -> NDArray[np.int64]:
    return np.array(list(product(*(range(1 << f.bits) for f in ensemble.features))), np.int64)


def texts_of(
    ensemble: Ensemble,
    encoding: str = "auto",
    decision: str = "auto",
    entries: str = "const",
    profile: str = "v1model",
) -> dict[str, str]:
    tables = plan(ensemble, load_profile(profile), encoding, decision).tables
    return render_p4(ensemble, tables, "p", entries == "runtime")


def score_of(ensemble: Ensemble, texts: Mapping[str, str], name: str = "p") -> TableScore:
    """What the tables of texts decide; ProofError when the texts are not what is written of their tables."""
    return TableScore(read_p4(ensemble, texts, name))


def read_back(ensemble: Ensemble, texts: Mapping[str, str]) -> ReadBack:
    return score_of(ensemble, texts).read_back(len(ensemble.trees), len(ensemble.features))


def by_boxes(ensemble: Ensemble, read: ReadBack) -> Certificate:
    return prove(ensemble, target="p4", outputs={}, read={"tables": read}, runs={}, tool="", max_cells=0)
