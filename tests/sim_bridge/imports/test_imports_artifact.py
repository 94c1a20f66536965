"""The training rows of the public Credence artifact: read exactly, or refused by one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import PAPER_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.splits import split_by_seed, split_by_time
from foretail.sim_bridge.imports import credence_artifact
from foretail.sim_bridge.imports.credence_artifact import COLUMNS, write_artifact_rows
from foretail.sim_bridge.open_loop.replay import replay_scores
from tests.examples import draws
from tests.traces import ARTIFACT

BUFFER = ARTIFACT.switches[0].buffer_bytes
HEADER = " ".join(COLUMNS)


def imported(folder: Path, text: str, name: str = "dataset", seed: int = 1) -> Dataset:
    log = folder / f"{name}.csv"
    log.write_text(text)
    write_artifact_rows(folder / name, replace(ARTIFACT, seed=seed), log)
    return Dataset.open(folder / name)


def text_of(rows: list[tuple[int, ...]]) -> str:
    return "\n".join([HEADER, *(" ".join(map(str, row)) for row in rows)]) + "\n"


@given(
    rows=st.lists(
        st.tuples(*[st.integers(0, BUFFER)] * 4, st.integers(0, 1)).map(
            lambda row: (min(row[0], row[2]), row[1], max(row[0], row[2]), *row[3:])
        ),
        min_size=1,
        max_size=60,
    ),
    block_bytes=st.sampled_from((200, 1000, 1 << 22)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=draws(30))
def test_rows_come_back_in_their_order(
    rows: list[tuple[int, ...]], block_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credence_artifact, "BLOCK_BYTES", block_bytes)
        dataset = imported(tmp_path_factory.mktemp("artifact"), text_of(rows))
    frame = dataset.frame()
    assert list(frame.columns) == [*PAPER_FEATURES, "lqd_drop"]
    np.testing.assert_array_equal(frame.to_numpy(np.int64), rows)
    assert dataset.manifest.drops == sum(row[4] for row in rows)
    assert dataset.manifest.control_rows == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not with queueLength"),
        ("a b c d e\n1 2 3 4 0\n", "not with queueLength"),
        (HEADER + " \n1 2 3 4 0 \n", "line 1 .* has other spaces than one between names"),
        (HEADER + "\n1 2 3 4 0 \n", "not five whole numbers .* single spaces between, none at the end"),
        (HEADER + "\n", "has no rows"),
        (HEADER + "\n1 2 3 4 0\n1 2 3", "is truncated"),
        (HEADER + "\n1 2 3 4 0\n1 2 3 4\n", "not five whole numbers"),
        (HEADER + "\n1 2 3 4 0 7\n1 2 3 4 0 7\n", "not five whole numbers"),
        (HEADER + "\n1 2 3 4.5 0\n", "not five whole numbers"),
        (HEADER + "\n1 2 3 x 0\n", "not five whole numbers"),
        (HEADER + "\n1 2 3  0\n", "not five whole numbers"),
        (HEADER + "\n1 2 3 99999999999999999999 0\n", "not five whole numbers"),
        (HEADER + "\n1 2 3 4 0\n1 2 3 4 2\n", "line 3 of the log"),
        (HEADER + "\n1 2 -3 4 0\n", "line 2 of the log"),
        (HEADER + f"\n1 2 {BUFFER + 1} 4 0\n", "correct credence_artifact.buffer_bytes"),
        (HEADER + "\n3 9 3 4 0\n4 2 3 4 1\n", "line 3 of the log .* is 4 2 3 4 1, where a queueLength of at most the"),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        imported(tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.csv"]


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"the log .* cannot be read"):
        write_artifact_rows(tmp_path / "dataset", ARTIFACT, tmp_path / "nowhere")


def test_what_needs_order_time_or_ports_is_refused(tmp_path: Path) -> None:
    dataset = imported(tmp_path, text_of([(1, 2, 3, 4, 1)] * 5))
    with pytest.raises(ForetailError, match="in the order of their fates, without arrival order, ports and time"):
        list(dataset.arrivals())
    with pytest.raises(ForetailError, match="in the order of their fates"):
        replay_scores(dataset, np.zeros(5, np.bool_))
    with pytest.raises(ForetailError, match=r"in the order of their fates.*no column 'time_ns'"):
        split_by_time([dataset], 0.2, 0.2, 1000)
    with pytest.raises(ForetailError, match=r"no column 'shadow_queue'.*features\.own_queues=true"):
        dataset.frame(["shadow_queue"])
    with pytest.raises(ForetailError, match="has no column 'mood'"):
        dataset.frame(["mood"])


def test_files_split_by_their_numbers(tmp_path: Path) -> None:
    datasets = [imported(tmp_path, text_of([(seed, 2, 3, 4, 1)]), f"d{seed}", seed) for seed in (1, 2, 3)]
    split = split_by_seed(datasets, [1], [2], [3])
    assert [side[0].frame(["queue"])["queue"].tolist() for side in (split.train, split.validation, split.test)] == [
        [1],
        [2],
        [3],
    ]


def test_the_manifest_says_whose_arithmetic_it_is(tmp_path: Path) -> None:
    manifest = imported(tmp_path, text_of([(1, 2, 3, 4, 0)])).manifest
    assert manifest.kind == "rows_in_order_of_fate"
    assert [(item.name, item.unit) for item in manifest.features] == [(name, "bytes") for name in PAPER_FEATURES]
    assert manifest.features[1].params == "unit=bytes,average=credence_artifact,cell_bytes=1"
