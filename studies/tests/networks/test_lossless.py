"""Lossless and lossy traffic beside each other; costs seventy simulations, twenty seconds of CPU time, native."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretail_studies.costs.drop_costs import price
from tests.composed import run_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("experiment", ["reverie_a", "reverie_b"])
def test_no_lossless_packet_is_lost_and_the_thesis_is_beside(experiment: str, tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", "seeds=[101]", f"store_dir={tmp_path / 'store'}")
    result = run_of(experiment, tmp_path, *given)
    rows = result.shown.rows
    assert len(rows) == 2 * 8
    assert rows["lossless_drops"].sum() == 0
    assert rows["unfinished"].sum() == 0
    assert rows["pauses"].sum() > 0
    assert rows["lossless_p99"].max() > 0
    assert rows["lossy_p99"].max() > 0
    assert result.verdict()[0] == "0 lossless packets were dropped in 16 runs."
    assert [table.title for table in result.shown.tables][-1].startswith("Claims, change in %: Section 5.3")


def test_only_pfc_pauses_and_only_without_it_packets_are_dropped(tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", "seeds=[101]", f"store_dir={tmp_path / 'store'}")
    rows = run_of("irn", tmp_path, *given).shown.rows
    found = {
        variant: {name: int(of_variant[name].sum()) for name in ("pauses", "drops")}
        for variant, of_variant in rows[rows["condition"] == "none"].groupby("variant")
    }
    assert found["roce_pfc"]["pauses"] > 0
    assert found["roce_pfc"]["drops"] == 0
    assert found["roce"]["pauses"] == 0
    assert found["roce"]["drops"] > 0


def test_a_price_counts_every_packet_that_a_flip_stands_for() -> None:
    flips = pd.DataFrame({"drop_cost": [0.001, 0.004], "arrivals": [3.0, 1.0]})
    found = price(flips)
    assert found.mean == pytest.approx(1.75)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 1.75 <= found.high
    same = price(pd.DataFrame({"drop_cost": np.full(5, 0.002), "arrivals": np.ones(5)}))
    assert same.low == same.high == pytest.approx(2.0)
