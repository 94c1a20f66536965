"""What values say of themselves in a session and in a notebook, and the names that programs import."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import foretail
import foretail.api as api
from foretail.core import summary
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import Rows
from foretail.testing import synthetic_arrivals
from tests.traces import write_bursts

X, Y = synthetic_arrivals(rows=2000, seed=1)
INPUTS = [api.FeatureInput(f"input_{place}", "", 24) for place in range(4)]


def test_the_package_has_a_version_and_every_name_of_the_api() -> None:
    assert foretail.__version__ == version("foretail")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        foretail.other  # noqa: B018
    assert all(hasattr(api, name) for name in api.__all__)


def test_a_repr_says_types_shapes_and_scores() -> None:
    ensemble = api.RandomForest(trees=2, depth=3).fit(X, Y).to_ensemble(INPUTS)
    assert repr(ensemble) == (
        "Ensemble(features=input_0, input_1, input_2, input_3, trees=2, depth=3, "
        f"leaves={sum(len(tree.leaves) for tree in ensemble.trees)}, threshold=1, output=mean_probability)"
    )
    assert repr(Rows(X, Y, None)) == "Rows(x=int32[2000, 4], lqd_drop=bool[2000], asked=None, weight=None)"
    assert repr(api.Confusion(1, 1, 2, 0)) == "Confusion(tp=1, fp=1, tn=2, fn=0, precision=0.5, recall=1, f1=0.666667)"
    packets = api.workloads.Incast().batches(ports=4, buffer=16, slots=200, seed=1)
    assert "eta=1" in repr(api.compare(packets, 4, 16, ["dt"]))


def test_a_dataset_says_what_it_holds(tmp_path: Path) -> None:
    dataset = Dataset.open(write_bursts(tmp_path / "dataset", seed=3, bursts=2).path)
    assert f"seed=3, rows={dataset.manifest.rows:,}, drops={dataset.manifest.drops:,}" in repr(dataset)
    assert f"<tr><th>rows</th><td>{dataset.manifest.rows:,}</td></tr>" in dataset._repr_html_()


def test_no_value_with_arrays_prints_them() -> None:
    with_arrays = [api.DemandMatrix, api.DemandSequence, api.Rows, api.Schedule]
    assert [kind for kind in with_arrays if not issubclass(kind, summary.Summarised)] == []
    assert repr(api.DemandMatrix(np.zeros((3, 3)))) == "DemandMatrix(demand=float64[3, 3])"
