"""The prediction of the last packets of messages at its small size: 26 short simulations, ten seconds of CPU time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.features.catalog import FLOW_FEATURES
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.settings.compose import compose_policy
from tests.composed import experiment_settings, run_of


@pytest.mark.slow
def test_what_survives_of_a_tag_stands_beside_limits_and_rules_by_hand(tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", f"store_dir={tmp_path / 'store'}", "jobs=1")
    result = run_of("message_end", tmp_path, *given)
    rows = result.shown.rows.set_index("told by")
    kinds = ["sender", "tree 0.3, all flows", "tree 0.3, 16 entries", "tree of sizes 0.3", "by hand", "sent 20"]
    assert list(rows.index) == [*kinds, "never", "always", "nobody"]
    assert rows.loc["tree 0.3, 16 entries", "bits"] == 512
    assert (rows.loc["sender", "change"], rows.loc["sender", "survives"]) == (0, 100)
    assert rows.loc["nobody", "survives"] == 0
    assert rows.loc["nobody", "change"] == pytest.approx(rows.loc["sender", "gain"])
    agreement = {row["by"]: row for row in result.document()["agreement"]}
    assert (agreement["always"]["told"], agreement["always"]["found"], agreement["never"]["told"]) == (1, 1, 0)
    assert agreement["by hand"]["right"] > 0.7
    tree, by_hand = (Ensemble.load(tmp_path / name) for name in ("tree.json", "by_hand.json"))
    assert [one.name for one in tree.features] == ["short_packet", "left_like_last"]
    said = by_hand.exceeds([[1, 9, 255], [0, 9, 255], [0, 9, 17], [0, 9, 18]])
    assert [one.name for one in by_hand.features] == list(FLOW_FEATURES)
    assert said.tolist() == [True, False, True, False]
    assert re.fullmatch(r"dt_2_sparing: .* % of the tag's gain survives with the tree, .*so far\.", result.verdict()[0])


def test_seeds_have_one_role_and_only_rules_that_spare_are_told(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="validation_seeds holds 701, on which the tree learns: choose on other"):
        experiment_settings("message_end", "size=small", "validation_seeds=[701]")
    library = tmp_path / "library.so"
    library.touch()
    policy = compose_policy("dt_alpha_2", "spared")
    policy.message_end = str(library)
    with pytest.raises(ForetailError, match="message_end is for a policy that spares the last packets of a message"):
        policy.check("policy.dt")
