"""Models swapped in BMv2 while packets run: every packet is decided by one model, never by a mix.

Costs a minute where p4c-bm2-ss and simple_switch_grpc are on PATH, else nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from foretail.configs.schema.model_stages import DeployConfig
from foretail.configs.schema.targets import P4Banks
from foretail.configs.schema.tracking import Tracking
from foretail.export.p4.runtime import tag_of
from foretail.export.passes import lower
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.cells import Cells
from foretail.pipelines.stages.deploy import DeployResult
from foretail.pipelines.stages.deploy import deploy as deploy_to_switch
from tests.export.p4.bmv2 import GrpcSwitch
from tests.export.p4.runtime.p4runtime import packets_meanwhile
from tests.forests import PAPER_INPUTS, paper_forest

TOOLS = ("p4c-bm2-ss", "simple_switch_grpc", "simple_switch_CLI")

needs_switch = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS),
    reason=f"{', '.join(TOOLS)} not on PATH: docs/guide/export.md says how to build them",
)
pytestmark = [pytest.mark.p4, pytest.mark.slow]

SWAPS = 100
BATCH = 2000
"""Packets that are sent at once, so that the switch nearly always has some before it."""


@needs_switch
def test_a_hundred_swaps_at_full_rate_mix_no_packet(tmp_path: Path) -> None:
    trained = paper_forest()
    random = np.random.default_rng(3)
    first = lower(trained.ensemble).ensemble
    drops = first.score(trained.rows) > first.require_votes()[1]
    models = [
        lower(
            RandomForest(trees=4, depth=4, min_leaf_rows=8, seed=seed)
            .fit(trained.rows, drops ^ (random.random(len(drops)) < 0.2))
            .to_ensemble(PAPER_INPUTS)
        ).ensemble
        for seed in range(3)
    ]
    for i, model in enumerate(models):
        (tmp_path / f"{i}.json").write_text(model.to_json())
    rows = np.concatenate([Cells.of(model).sample(BATCH, random) for model in models])
    expected = {tag_of(model.sha256): model.score(rows) for model in models}
    taus = {tag_of(model.sha256): model.require_votes()[1] for model in models}
    packets = [b"".join(int(value).to_bytes(3, "big") for value in row) for row in rows]

    with GrpcSwitch(tmp_path) as switch:

        def deploy(model: int | None, **settings: object) -> DeployResult:
            plain = {"switch": switch.address, "device_id": switch.device_id, "tracking": Tracking(False)}
            plain |= {"store_dir": str(tmp_path / "store"), "banks": P4Banks(), "drain_ms": 50.0}
            address = None if model is None else str(tmp_path / f"{model}.json")
            return deploy_to_switch(DeployConfig(model=address, **(plain | settings)), tmp_path / "run")  # type: ignore[arg-type]

        deploy(0, program=True)
        switch.command("set_queue_depth 10000000")

        def send(number: int) -> list[tuple[int, bytes]]:
            order = random.permutation(len(packets))[:BATCH]
            replies = switch.exchange([packets[i] for i in order])
            return list(zip(order.tolist(), replies, strict=True))

        with packets_meanwhile(send) as batches:
            for i in range(1, SWAPS + 1):
                found = deploy(i % 3)
                assert next(bank for bank in found.banks if bank.decides).tag == models[i % 3].sha256[:8]
        counted = deploy((SWAPS + 1) % 3, canary=True).decisions
        assert counted.packets == 0
        tags: dict[int, int] = {}
        for place, reply in (one for batch in batches for one in batch):
            score = int.from_bytes(reply[12:20], "big", signed=True)
            drop, tag = reply[20], int.from_bytes(reply[21:25], "big")
            tags[tag] = tags.get(tag, 0) + 1
            assert (score, drop) == (expected[tag][place], expected[tag][place] > taus[tag])
        assert set(tags) == set(expected)

        switch.exchange(packets)  # and what the canary would have said of every one
        live, other = (tag_of(models[i % 3].sha256) for i in (SWAPS, SWAPS + 1))
        said = [expected[tag] > taus[tag] for tag in (live, other)]
        counted = deploy(None).decisions
        pairs = [int(np.sum((said[0] == a) & (said[1] == b))) for a in (False, True) for b in (False, True)]
        assert [counted.both_accept, counted.other_drops, counted.live_drops, counted.both_drop] == pairs
    print(f"{sum(tags.values()):,} packets during {SWAPS} swaps: {tags}")
