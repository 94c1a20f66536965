"""Models in running switches: rows in a frame, banks, swaps, and what goes wrong on the way.

Costs 10 s: a switch in this process takes the place of BMv2; test_deploy_bmv2.py has the real one.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from foretail.configs.schema.model_stages import DeployConfig
from foretail.configs.schema.targets import P4Banks
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.export.p4.banks import over
from foretail.export.p4.encoding import Frame
from foretail.export.p4.runtime import BANKS, P4RuntimeSwitch, tag_of
from foretail.export.p4.target import P4
from foretail.export.passes import lower
from foretail.export.target import export
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines.stages.deploy import DeployResult
from foretail.pipelines.stages.deploy import deploy as deploy_to_switch
from tests.export.p4.p4_texts import everything, small_ensemble
from tests.export.p4.runtime.p4runtime import FakeSwitch, info_of, packets_meanwhile, served
from tests.forests import paper_forest, stump

pytestmark = pytest.mark.slow

FRAME = Frame({"queue": "", "table": ""}, 4, 1, 64)
MODELS = [small_ensemble(stumps) for stumps in (1, 2, 3)]
Deploy = Callable[..., DeployResult]


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> p4i.P4Info:
    return info_of(MODELS[0], FRAME, tmp_path_factory.mktemp("program"))


@pytest.fixture
def switch(info: p4i.P4Info) -> FakeSwitch:
    return FakeSwitch(info)


@pytest.fixture
def address(switch: FakeSwitch) -> Iterator[str]:
    with served(switch) as found:
        yield found


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for i, model in enumerate(MODELS):
        (tmp_path / f"{i}.json").write_text(model.to_json())
    return [str(tmp_path / f"{i}.json") for i in range(len(MODELS))]


@pytest.fixture
def deploy(address: str, tmp_path: Path) -> Deploy:
    def run(model: str | None = None, **settings: object) -> DeployResult:
        plain = {"switch": address, "drain_ms": 0.0, "store_dir": str(tmp_path / "store"), "tracking": Tracking(False)}
        config = DeployConfig(model=model, **(plain | settings))  # type: ignore[arg-type]
        return deploy_to_switch(config, tmp_path / "run")

    return run


def decided(switch: FakeSwitch, model: Ensemble) -> bool:
    """Whether a switch decides every input as a model does, and says its tag."""
    rows = everything(model)
    names = [feature.name for feature in model.features]
    found = [switch.packet(dict(zip(names, row, strict=True)), FRAME) for row in rows.tolist()]
    tau = model.require_votes()[1]
    return found == [(tag_of(model.sha256), score, score > tau) for score in model.score(rows).tolist()]


@pytest.mark.parametrize("profile", ["v1model", "tofino", "tofino2"])
@pytest.mark.parametrize("max_cells", [10**6, 1])
def test_models_are_proven_in_a_frame_of_their_features_and_others(
    profile: str, max_cells: int, tmp_path: Path
) -> None:
    forest = paper_forest().ensemble
    params = {feature.name: feature.params for feature in forest.features}
    for model, frame in (
        (lower(forest, any_tau=False).ensemble, Frame({"first_rtt": "", **params, "fill": ""}, 6, 2, 512)),
        (small_ensemble(), Frame({"table": "", "queue": ""}, 2, 1, 32)),
        (
            Ensemble(small_ensemble().features, (stump([1.0, 1.0], cut=3, feature=0),), Fraction(1, 2), output="logit"),
            Frame({"table": "", "queue": ""}, 3, 1, 32),
        ),
    ):
        for bank in BANKS:
            target = P4(entries="runtime", frame=frame, bank=bank, profile=profile)
            done = export(over(model, frame), target, tmp_path / "out", any_tau=False, max_cells=max_cells)
            found = done.certificate
            assert (found.boxes is None) == (max_cells >= found.cells)
            assert found.ir_sha256 == done.ensemble.sha256


def test_a_deployed_model_decides(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    for file, model in zip(files, MODELS, strict=True):
        found = deploy(file)
        assert decided(switch, model)
        live = next(bank for bank in found.banks if bank.decides)
        assert (live.tag, live.tau) == (model.sha256[:8], model.require_votes()[1])
    assert [bank.tag for bank in deploy().banks] == [MODELS[1].sha256[:8], MODELS[2].sha256[:8]]
    again = deploy(files[2])
    assert not again.steps
    assert next(bank for bank in again.banks if bank.decides).bank == "b"


def test_a_rollback_is_one_write(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    deploy(files[0])
    with pytest.raises(ForetailError, match=r"bank a of the switch at .* contains no whole model: deploy one first"):
        deploy(rollback=True)
    deploy(files[1])
    before = switch.updates
    assert next(bank for bank in deploy(rollback=True).banks if bank.decides).tag == MODELS[0].sha256[:8]
    assert switch.updates - before == 1 + 4  # and the counters
    assert decided(switch, MODELS[0])


def test_a_canary_is_counted_and_does_not_decide(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    deploy(files[0])
    with pytest.raises(ForetailError, match="the model decides already, in bank b: a canary is another model"):
        deploy(files[0], canary=True)
    assert deploy(files[1], canary=True).decisions.packets == 0
    assert decided(switch, MODELS[0])
    rows = everything(MODELS[0])
    drops = [model.score(rows) > model.require_votes()[1] for model in MODELS[:2]]
    counted = deploy().decisions
    pairs = [int(np.sum((drops[0] == live) & (drops[1] == other))) for live in (False, True) for other in (False, True)]
    assert [counted.both_accept, counted.other_drops, counted.live_drops, counted.both_drop] == pairs
    assert counted.other_drops or counted.live_drops
    before = switch.updates
    deploy(files[1])  # it is there: the number of the bank, and the counters
    assert switch.updates - before == 1 + 4
    assert decided(switch, MODELS[1])


def test_another_tau_of_the_other_bank_waits_until_no_packet_is_in_it(
    switch: FakeSwitch, deploy: Deploy, files: list[str]
) -> None:
    deploy(files[0])
    deploy(files[1])
    deploy(rollback=True)
    live = [[0, 0, 0]]
    tau = MODELS[1].require_votes()[1] + 1
    table = switch._id("tables", "bank_a.decide")

    def see(number: int, update: p4r.Update) -> None:
        if update.entity.table_entry.table_id == table:
            live.append(switch._data("live", None))

    switch.before_update = see
    found = deploy(files[1], canary=True, tau=tau)
    assert live[1:] == [[1, 0, tag_of(MODELS[0].sha256)]]  # the bank is not whole when its tau changes
    assert {bank.bank: bank.tau for bank in found.banks}["a"] == tau
    assert decided(switch, MODELS[0])


def test_tau_is_turned_by_one_write(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    deploy(files[0])
    before = switch.updates
    rows = everything(MODELS[0])
    tau = int(MODELS[0].score(rows).max()) - 1
    assert tau != MODELS[0].require_votes()[1]
    deploy(files[0], tau=tau)
    assert switch.updates - before == 1
    found = [switch.packet(dict(zip(FRAME.features, row, strict=True)), FRAME) for row in rows.tolist()]
    assert [drop for _, _, drop in found] == (MODELS[0].score(rows) > tau).tolist()
    with pytest.raises(ForetailError, match=r"any_tau=false is for tau -?[0-9]+ alone: leave tau out, or any_tau"):
        deploy(files[1], tau=MODELS[1].require_votes()[1] + 1, any_tau=False)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([7, 1, 1], "says that bank 7 decides, and has 0 and 1: restart it"),
        ([0, 1], "gives 2 parameters of the default action of table 0x[0-9a-f]+, which has 3: restart it"),
        ([0, 1, 1, 1], "gives 4 parameters of the default action"),
    ],
)
def test_a_live_bank_that_cannot_be_is_said(
    values: list[int], sentence: str, switch: FakeSwitch, deploy: Deploy, files: list[str]
) -> None:
    deploy(files[0])
    params = switch.defaults[switch._id("tables", "live")].action.action.params
    del params[:]
    for number, value in enumerate(values, 1):
        params.add(param_id=number, value=bytes([value]))
    for given in ({}, {"model": files[1]}, {"rollback": True}):
        with pytest.raises(ForetailError, match=sentence):
            deploy(**given)


def test_a_peer_that_leaves_at_every_connection_ends_with_a_sentence() -> None:
    """Of a connection that stays open after it, grpc would repeat the call without end."""

    def frame(kind: int, content: bytes) -> bytes:
        return len(content).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 0]) + content

    settings, enhance_your_calm = frame(4, b""), frame(7, (0).to_bytes(4, "big") + (11).to_bytes(4, "big"))
    connections: list[socket.socket] = []
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(listening.accept()[0])
                    connections[-1].sendall(settings + enhance_your_calm)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ForetailError, match=f"at {address}"), P4RuntimeSwitch(address):
            pass
        listening.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()
    assert len(connections) < 100


def test_no_packet_is_decided_by_a_mix(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    deploy(files[0])
    by_tag = {tag_of(model.sha256): model for model in MODELS}
    rows = everything(MODELS[0]).tolist()

    def send(number: int) -> tuple[list[int], tuple[int, int, bool]]:
        row = rows[number % len(rows)]
        return row, switch.packet(dict(zip(FRAME.features, row, strict=True)), FRAME)

    with packets_meanwhile(send) as found:
        for i in range(1, 13):
            deploy(files[i % 3], drain_ms=20.0)
    tags: set[int] = set()
    for row, (tag, score, drop) in found:
        model = by_tag[tag]
        assert (score, drop) == (model.score(np.array([row]))[0], score > model.require_votes()[1])
        tags.add(tag)
    assert tags == set(by_tag)


def test_rows_written_where_packets_are_decided_do_mix(
    switch: FakeSwitch, address: str, deploy: Deploy, files: list[str], tmp_path: Path
) -> None:
    deploy(files[0])
    row = dict.fromkeys(FRAME.features, 7)
    done = export(over(MODELS[2], FRAME), P4(entries="runtime", frame=FRAME, bank="b"), tmp_path / "rows")
    updates = text_format.Parse(done.file(".entries.txtpb").read_text(), p4r.WriteRequest()).updates
    scores: set[int] = set()
    switch.before_update = lambda number, update: scores.add(switch.packet(row, FRAME)[1])
    old = [entry for rows in switch.rows.values() for entry in rows.values()]
    with P4RuntimeSwitch(address) as client:
        client.write(p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry)) for entry in old)
        client.write(updates)
    models = {int(model.score(np.array([[7, 7]]))[0]) for model in (MODELS[0], MODELS[2])}
    assert models < scores


@pytest.mark.parametrize("at", [1, 2, 9, 25, 40])
def test_an_interrupted_swap_leaves_the_old_model(
    at: int, switch: FakeSwitch, deploy: Deploy, files: list[str]
) -> None:
    for file in files[:2]:
        deploy(file)
    first = switch.updates

    def fails(number: int, update: p4r.Update) -> None:
        if number == first + at:
            raise ValueError("out of memory")

    switch.before_update = fails
    with pytest.raises(ForetailError, match=r"the switch at .* refuses an update \(invalid argument: .*out of memory"):
        deploy(files[2])
    assert decided(switch, MODELS[1])
    tags = {bank.bank: bank.tag for bank in deploy().banks}
    assert tags["b" if tags["a"] == MODELS[1].sha256[:8] else "a"] in (
        *(None, MODELS[0].sha256[:8]),
        MODELS[2].sha256[:8],  # whole, as a canary
    )
    deploy(files[2])
    assert decided(switch, MODELS[2])


def test_rows_that_the_switch_does_not_keep_are_noticed(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    deploy(files[0])
    keep = switch._update

    def forgets(update: p4r.Update) -> None:
        keep(update)
        if update.type == p4r.Update.INSERT and update.entity.table_entry.priority == 2:
            update.type = p4r.Update.DELETE
            keep(update)

    switch._update = forgets  # type: ignore[method-assign]
    with pytest.raises(ForetailError, match="does not hold the rows that it was sent; bank b still decides: deploy"):
        deploy(files[1])
    assert decided(switch, MODELS[0])


def test_what_is_no_switch_for_this_model_is_refused(
    switch: FakeSwitch, deploy: Deploy, files: list[str], tmp_path: Path, info: p4i.P4Info
) -> None:
    def refused(model: Ensemble, match: str) -> None:
        (tmp_path / "model.json").write_text(model.to_json())
        with pytest.raises(ForetailError, match=match):
            deploy(str(tmp_path / "model.json"))
        assert not switch.updates

    small = MODELS[0]
    refused(small_ensemble(5), "^the model needs 6 trees, and the program of the switch has room for 4 trees, 64 rows")
    other = replace(small, features=(FeatureInput("fill", "", 3), small.features[1]))
    refused(other, "the switch's program has no feature fill, it has queue, table: train on those, or put")
    cells = replace(small, features=(FeatureInput("queue", "cell_bytes=256", 3), small.features[1]))
    refused(cells, "the switch computes queue with no constants, the model needs cell_bytes=256: train for")

    with pytest.raises(ForetailError, match="runs another program, without banks of Queries: build Queries's program"):
        deploy(files[0], control="Queries")
    switch.info = p4i.P4Info()
    with pytest.raises(ForetailError, match="the switch runs another program, without banks of DropPredictor: build"):
        deploy(files[0])
    for damage in ("key", "decide", "order", "counter"):
        changed = p4i.P4Info()
        changed.CopyFrom(info)
        decide = next(table for table in changed.tables if table.preamble.name.endswith("bank_b.decide"))
        if damage == "key":
            changed.tables[0].match_fields[0].bitwidth = 16
        elif damage == "decide":
            changed.tables.remove(decide)
        elif damage == "order":
            changed.tables[0].preamble.id += 100
        else:
            del changed.counters[:]
        switch.info = changed
        with pytest.raises(ForetailError, match=r"are not those that Foretail writes .*: export them again"):
            deploy(files[0])
    switch.info = None
    with pytest.raises(ForetailError, match="has no program: put one onto it"):
        deploy(files[0])


def test_a_program_is_compiled_and_put_onto_the_switch(
    switch: FakeSwitch,
    deploy: Deploy,
    files: list[str],
    tmp_path: Path,
    info: p4i.P4Info,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch.info = None
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ForetailError, match="p4c-bm2-ss is not on PATH: build it"):
        deploy(files[0], program=True, banks=P4Banks(trees=4, rows=64))
    (tmp_path / "info").write_text(text_format.MessageToString(info))
    compiler = tmp_path / "bin" / "p4c-bm2-ss"
    compiler.write_text(f'#!/bin/sh\nset -e\n/bin/cp {tmp_path}/info "$7"; echo "{{}}" > "$4"\n')
    compiler.chmod(0o755)
    found = deploy(files[0], program=True, banks=P4Banks(trees=4, rows=64))
    sizes = "4 trees, 64 rows a table and 32 bits a feature over queue, table"
    assert found.steps[0][1] == f"program with room for {sizes}"
    assert decided(switch, MODELS[0])


def test_two_controllers_do_not_write_at_once(switch: FakeSwitch, deploy: Deploy, files: list[str]) -> None:
    switch.primary = 7
    with pytest.raises(ForetailError, match=r"another controller is the primary of the switch at .*: stop it"):
        deploy(files[0])
    switch.primary = None
    deploy(files[0])


def test_a_switch_that_opens_the_stream_and_never_answers(
    deploy: Deploy, switch: FakeSwitch, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretail.export.p4.runtime.CONNECT_SECONDS", 0.3)
    switch.is_silent = True
    with pytest.raises(ForetailError, match=r"does not say within 0\.3 s whether this program may control it"):
        deploy(files[0])
    switch.is_silent = False


def test_an_address_where_nothing_answers(deploy: Deploy, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretail.export.p4.runtime.CONNECT_SECONDS", 0.3)
    with pytest.raises(ForetailError, match=r"nothing answers at 127.0.0.1:1: start the switch"):
        deploy(files[0], switch="127.0.0.1:1")


def test_banks_that_a_chip_has_no_room_for_are_refused(tmp_path: Path) -> None:
    frame = Frame({f"f{i}": "" for i in range(9)}, 4, 2, 64)
    with pytest.raises(
        ForetailError, match=r"tofino .*the key of tree_0 has 576 bits of 512.*: make the banks smaller"
    ):
        export(
            over(replace(MODELS[0], features=tuple(FeatureInput(f"f{i}", "", 3) for i in range(2))), frame),
            P4(entries="runtime", frame=frame, profile="tofino"),
            tmp_path / "out",
            any_tau=False,
        )


def _live_bank(update: p4r.Update, live: int) -> int | None:
    """The bank that an update makes the live one; None where it is of another table."""
    entry = update.entity.table_entry
    return int.from_bytes(entry.action.action.params[0].value, "big") if entry.table_id == live else None


def test_a_swap_that_is_acknowledged_and_ignored_is_said(
    switch: FakeSwitch, deploy: Deploy, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(files[0])
    live, update, before = switch._id("tables", "live"), switch._update, switch._data("live", None)[0]
    monkeypatch.setattr(
        switch,
        "_update",
        lambda one: None if _live_bank(one, live) not in (None, before) else update(one),
    )
    with pytest.raises(ForetailError, match=r"took the write of the live bank a, and bank b decides: deploy again"):
        deploy(files[1])
    assert decided(switch, MODELS[0])


@pytest.mark.nightly
def test_a_killed_swap_leaves_the_old_model(
    switch: FakeSwitch, address: str, deploy: Deploy, files: list[str], tmp_path: Path
) -> None:
    deploy(files[0])
    command = [sys.executable, "-m", "foretail.pipelines.cli", "deploy", f"switch={address}", f"model={files[1]}"]
    running: list[subprocess.Popen[bytes]] = []

    def kills(number: int, update: p4r.Update) -> None:
        if update.type == p4r.Update.INSERT:
            running[0].kill()

    switch.before_update = kills
    running.append(subprocess.Popen([*command, "tracking=off"], cwd=tmp_path, stdout=subprocess.DEVNULL))
    assert running[0].wait(timeout=120) == -signal.SIGKILL
    assert decided(switch, MODELS[0])
    switch.before_update = lambda number, update: None
    deploy(files[1])
    assert decided(switch, MODELS[1])
