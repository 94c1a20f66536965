from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.arrivals.workloads import workload_of
from foretail_studies.predictors.promise import (
    DRAWN,
    LEAST_LOST,
    OWN,
    UNSEEN,
    WITHIN,
    _summary,
    _verdict,
    drawn_workloads,
)
from tests.composed import foretail, result_in

pytestmark = pytest.mark.slow
OF_RUN = ["workload", "held_out", "drawn", "seed", "policy", "setting"]
COLUMNS = [*OF_RUN, "sent", "sent_by_lqd", "sent_by_accept", "recovered"]
MODELS = ("paper", "sent")
UNDER = ("learned", "credence", "guarded")


@pytest.mark.nightly
def test_policies_and_models_stand_side_by_side(tmp_path: Path) -> None:
    done = foretail(tmp_path, "run", "promise", "size=small", "tracking=off", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    document = result_in(tmp_path / "run")
    rows = pd.DataFrame(document["rows"])
    assert list(rows.columns) == COLUMNS
    inverted = rows[rows["setting"].str.endswith(" inverted")]
    judged = rows.drop(inverted.index)
    assert set(judged["policy"]) == {"always accept", "dt", "abm", "cs", "harmonic", *MODELS, OWN, "LQD"}
    assert not judged.duplicated(["workload", "seed", "policy", "setting"]).any()
    (fresh,) = drawn_workloads(1, seed=3)
    told = rows.groupby("workload")[["held_out", "drawn"]].first()
    assert dict(told["held_out"]) == {"incast_5": False, "on_off_90": True, fresh: True}
    assert dict(told["drawn"]) == {"incast_5": False, "on_off_90": False, fresh: True}
    assert set(rows["seed"]) == {11, 12}
    for _, row in rows.iterrows():
        lost = row["sent_by_lqd"] - row["sent_by_accept"]
        if lost < LEAST_LOST * row["sent_by_lqd"]:
            assert pd.isna(row["recovered"])
        else:
            assert row["recovered"] == pytest.approx((row["sent"] - row["sent_by_accept"]) / lost)
    assert (rows.groupby(["workload", "seed"])["sent_by_lqd"].nunique() == 1).all()
    assert (rows.groupby(["workload", "seed"])["sent_by_accept"].nunique() == 1).all()
    assert (rows[rows["policy"] == "LQD"]["sent"] == rows[rows["policy"] == "LQD"]["sent_by_lqd"]).all()
    tuned = rows[(rows["policy"] == "dt") & (rows["setting"] != "default")]
    assert tuned["setting"].nunique() == 1  # one alpha for all workloads, chosen where the models trained
    assert len(document["verdict"]) == 3
    for sentence, kind in zip(document["verdict"], (WITHIN, UNSEEN, DRAWN), strict=True):
        assert re.match(rf"On {kind}, model \w+ sends [\d.]+ %.* of what LQD sends and ", sentence)
    assert_answers_are_inverted(inverted, judged)


def assert_answers_are_inverted(inverted: pd.DataFrame, judged: pd.DataFrame) -> None:
    """The best model asked by every policy; with no answer inverted it sends what the study says it sends."""
    policies = set(inverted["policy"])
    (model,) = {name.partition(" under ")[0] for name in policies}
    assert policies == {f"{model} under {policy}" for policy in UNDER}
    assert set(inverted["setting"]) == {f"{share} % inverted" for share in (0, 1, 5, 10, 50)}
    assert len(inverted) == 3 * 2 * 3 * 5
    own = inverted[(inverted["policy"] == f"{model} under learned") & (inverted["setting"] == "0 % inverted")]
    told = judged[(judged["policy"] == model) & (judged["setting"] == "model")]
    assert own.set_index(["workload", "seed"])["sent"].equals(told.set_index(["workload", "seed"])["sent"])
    half = inverted[inverted["setting"] == "50 % inverted"].groupby("policy")["sent"].sum()
    assert half[f"{model} under learned"] < half[f"{model} under credence"]  # which asks about fewer packets


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30))
def test_drawn_workloads_can_be_collected_and_more_of_them_change_none(seed: int, count: int) -> None:
    drawn = drawn_workloads(count, seed)
    assert len(drawn) == count
    assert list(drawn_workloads(count + 3, seed).items())[:count] == list(drawn.items())
    kinds = [own[0] for own in drawn.values()]
    assert kinds == [f"slotted.workload={('incast', 'on_off', 'poisson_bursts')[n % 3]}" for n in range(count)]


def test_every_drawn_workload_is_one_that_collect_takes() -> None:
    for own in drawn_workloads(30, seed=5).values():
        slotted = compose_settings(CollectConfig, ["source=slotted", *own], "workloads.drawn").slotted
        traffic = workload_of(slotted.workload, slotted.settings)
        assert next(traffic.batches(slotted.ports, slotted.ports * slotted.buffer_per_port, 5000, 1), None) is not None


def made_up(*sent: tuple[str, bool, int, int, int]) -> pd.DataFrame:
    """Rows of workloads, held out or not: what tuned Dynamic Thresholds, a model and accepting send of 100 packets."""
    return pd.DataFrame(
        [
            {
                "workload": workload,
                "held_out": held_out,
                "drawn": False,
                "seed": 1,
                "policy": policy,
                "setting": setting,
                "sent": count,
                "sent_by_lqd": 100,
                "sent_by_accept": accept,
                "recovered": None if accept == 100 else (count - accept) / (100 - accept),
            }
            for workload, held_out, dt, model, accept in sent
            for policy, setting, count in (
                ("always accept", "", accept),
                ("dt", "default", 50),
                ("dt", "DT, alpha 16", dt),
                ("learner", "model", model),
                (OWN, "", 100),
                ("LQD", "", 100),
            )
        ]
    )


def test_the_verdict_has_a_sentence_for_each_kind_of_workload() -> None:
    rows = made_up(("bursts", False, 80, 90, 60), ("incast", False, 90, 95, 70), ("new", True, 90, 85, 87))
    within, unseen = _verdict(rows, _summary(rows), "learner")
    assert within.startswith(f"On {WITHIN}, model learner sends 92.47 [")
    assert unseen.startswith(f"On {UNSEEN}, model learner sends 85 %")
    assert f"a gain of {100 * math.log(85 / 90):.3g} % over workloads" in unseen
