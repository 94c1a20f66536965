"""Every command of the pages does what its page says: it runs on tiny inputs, or its settings compose and are checked.

``RULES`` says which commands run, and what is swapped for something else; the settings of any other are composed.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_module

from foretail.configs.plugins import with_policies
from foretail.configs.schema.stages import STAGES, register
from foretail.pipelines import cli
from foretail.pipelines.settings.validation import typed
from foretail.sim_bridge.imports.credence_artifact import COLUMNS
from foretail.sim_bridge.imports.pcap.synthetic import write_switch
from tests.composed import experiment_settings
from tests.docs.pages import PAGES, ROOT, Command, blocks, commands_of
from tests.etalon_logs import emulate, write_etalon_log

pytestmark = pytest.mark.slow

GATE = (0, cli.EXIT_REFUSED)
"""Exit codes of a promotion: a tiny model may well be refused."""

SLOTTED = ("slotted.slots=1500", "slotted.buffer_per_port=10")
"""Overrides that make a slotted dataset tiny."""

SIDES = ("split.train=[1,2]", "split.validation=[3]", "split.test=[4]", "allow_constant_features=true")
"""Runs of that dataset, for a tiny model."""


@dataclass(frozen=True)
class Rule:
    """How a command is tested.

    Attributes
    ----------
    pattern : regular expression that finds the command, behind its page and a colon
    how : ``run``, or ``compose`` for what takes minutes, or ns-3 at full size
    tiny : overrides that make it small; each replaces one of its setting
    swap : what stands for something of the reader's, with what the test has
    codes : exit codes of a run
    ns3 : whether ns-3 runs
    """

    pattern: str
    how: str
    tiny: tuple[str, ...] = ()
    swap: dict[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = (0,)
    ns3: bool = False


RULES = [
    # README and docs/guide/first-predictor.md
    Rule(r"(README|first-predictor).md: collect ", "run", SLOTTED),
    Rule(r"(README|first-predictor).md: train ", "run", (*SIDES, "objective.trials=24")),
    Rule(r"(README|first-predictor).md: (replay|export) ", "run"),
    Rule(r"first-predictor.md: promote ", "run", ("to=challenger", "p4=false"), codes=GATE),
    # docs/guide/install.md
    Rule(r"install.md: doctor", "run"),
    # docs/guide/data.md
    Rule(r"data.md: collect --config-dir", "run", ("seeds=[1]", "scenario.traffic_ns=500_000"), ns3=True),
    Rule(r"data.md: train --config-dir", "run", ns3=True),
    Rule(r"data.md: evaluate --config-dir", "run", ("seeds=[11]", "jobs=1"), ns3=True),
    Rule(r"data.md: collect source=slotted", "run", ("slotted.slots=500", "seeds=[1]")),
    Rule(r"data.md: replay arrivals=FILE model=M", "compose", ("ports=8", "buffer=64")),
    Rule(r"data.md: replay .*model=", "compose"),  # train.md replays a model
    Rule(r"data.md: replay ", "run"),
    Rule(r"data.md: collect source=pcap", "run"),
    Rule(r"data.md: collect source=etalon", "run", ("jobs=1",)),
    Rule(r"data.md: demand logs=", "run", ("demand_predictor=[last_value]", "trusts=[2,3]", "steps=8", "warm_up=4")),
    Rule(r"data.md: collect source=credence_artifact", "run"),
    # docs/guide/train.md
    Rule(r"train.md: train .*sweep-TIME", "compose"),
    Rule(r"train.md: train predictor=", "compose"),
    Rule(r"train.md: replay datasets=", "run"),
    Rule(r"train.md: promote .*@candidate ", "run", ("p4=false",), codes=GATE),
    # docs/guide/export.md
    Rule(r"export.md: train .*predictor=mlp", "run", ("allow_constant_features=true", "predictor.steps=50")),
    Rule(r"export.md: export model=outputs/mlp .*DATASET", "compose"),
    Rule(r"export.md: export model=outputs/mlp ", "run"),
    Rule(r"export.md: export model=models:/foretail-drop@candidate target=(c out=drop|p4|onnx)$", "run"),
    # docs/guide/vermilion.md
    Rule(r"vermilion.md: schedule demand=demand.csv", "run"),
    Rule(r"vermilion.md: schedule forecast=", "run"),
    Rule(
        r"vermilion.md: run vermilion_fig8_5",
        "run",
        ("slots=300", "drain_slots=300", "seeds=[1]"),
    ),
    Rule(
        r"vermilion.md: demand demand_predictor=\S*seasonal",
        "run",
        ("collectives=[ring]", "steps=10", "warm_up=4", "trusts=[2,3]", "nodes=4"),
    ),
    Rule(r"vermilion.md: demand logs=", "run", ("demand_predictor=[last_value,linear_entries]", "trusts=[2,3]")),
    # docs/guide/extend.md; tests/plugins/ installs the guests and runs the others
    Rule(r"extend.md: train predictor=my_stump", "compose", swap={"my_stump": "extra_trees"}),
    Rule(r"extend.md: train scenario=tiny predictor=torch_network", "compose", swap={"torch_network": "mlp"}),
    Rule(r"extend.md: train --config-dir", "run", ("datasets=[outputs/bursts]", *SIDES)),
    Rule(r"extend.md: replay arrivals=", "run"),
    Rule(r"extend.md: run c", "run", ("slots=500", "ports=[4]")),
    Rule(r"extend.md: export ", "compose", swap={"=sql": "=onnx"}),
    Rule(r"extend.md: schedule demand=", "run", swap={"=shifts": "=mars", "{step: 3}": "{graph_degree: 4}"}),
    Rule(r"extend.md: run vermilion", "compose", swap={",shifts]": ",mars]"}),
    Rule(r"extend.md: train operating_point", "compose", ("operating_point.settings=null",), swap={"=precise": "=f1"}),
    Rule(r"extend.md: collect ", "compose", swap={"=steady": "=uniform"}),
    # elsewhere
    Rule(r"driver.md: evaluate scenario=collectives", "run", ("scenario.collective.repeat=1",), ns3=True),
    Rule(r"reliability.md: verify ", "run"),
    Rule(r"CONTRIBUTING.md: train ", "compose", swap={"NAME": "extra_trees", "PARAMETER": "depth"}),
    Rule(
        r"last-packets.md: (export|evaluate) .*(by_hand|message_end)",
        "compose",
        swap={"message_end=by_hand_c/drop_predictor.so": "message_end=null"},
    ),
    Rule(r"tofino.md: (train|collect|evaluate|export model=rule.json) ", "compose"),
    Rule(r"tofino.md: export .*arch=tna", "run", swap={"@champion": "@candidate"}),
]

COMPOSED = Rule("", "compose")

COMMANDS = [command for page in PAGES for command in commands_of(page)]


def rule_of(command: Command) -> Rule:
    return next((rule for rule in RULES if re.search(rule.pattern, f"{command.page}: {plain(command)}")), COMPOSED)


def plain(command: Command) -> str:
    """The command without quotes, for patterns."""
    return " ".join(command.words)


def with_overrides(command: Command, rule: Rule) -> list[str]:
    """The words of the command with the placeholders swapped and the rule's overrides in place."""
    words = list(command.words)
    for placeholder, ours in rule.swap.items():
        words = [word.replace(placeholder, ours) for word in words]
    names = {override.partition("=")[0] for override in rule.tiny}
    return [word for word in words if word.partition("=")[0] not in names] + list(rule.tiny)


def composed_settings(words: list[str]) -> None:
    """Compose and check the settings as the stage itself does; of a sweep, those of its first job."""
    stage, *overrides = words
    if "--multirun" in overrides:
        overrides = [re.sub(r"^([\w.]+=[^\[{,]+),.*$", r"\1", word) for word in overrides if word != "--multirun"]
    if stage == "run":
        experiment_settings(*overrides)
        return
    register(stage)
    overrides = with_policies(overrides)
    with initialize_config_module("foretail.configs", version_base="1.3"):
        typed(compose(stage, overrides), STAGES[stage], overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder, with the files that the pages name and a store that holds a tiny model."""
    here = tmp_path_factory.mktemp("reader")
    rng = np.random.default_rng(1)
    slots = np.sort(rng.integers(0, 300, 3000))
    lines = [
        f"{slot},{port},{drop}"
        for slot, port, drop in zip(slots, rng.integers(0, 20, 3000), rng.integers(0, 2, 3000), strict=True)
    ]
    for name in ("arrivals", "1", "2", "3"):
        (here / f"{name}.csv").write_text("\n".join(["slot,port,prediction", *lines]) + "\n")
    (here / "demand.csv").write_text("0,3,1,0\n0,0,2,2\n2,0,0,1\n1,1,0,0\n")
    (here / "captures").mkdir()
    write_switch(here / "captures", ports=2, packets=1000, seed=1)
    for name in ("RUN", "A", "B", "C"):
        write_etalon_log(here / f"{name}-click.txt", *emulate(8, 12, 0.8, 50, seed=ord(name[0])))
    for name in ("A", "B", "C"):
        demand = rng.integers(1, 10**6, (12, 4, 4)) * (1 - np.eye(4, dtype=np.int64))
        (here / f"{name}.txt").write_text("".join(f"{' '.join(map(str, step.ravel()))}\n" for step in demand))
    for day in ("monday", "tuesday", "wednesday", "thursday"):
        rows = [
            f"{step},{i},{j},{rng.integers(1, 10**6)}"
            for step in range(12)
            for i in range(4)
            for j in range(4)
            if i != j
        ]
        (here / f"{day}.csv").write_text("\n".join(["step,source,destination,bytes", *rows]) + "\n")
    for leaf in range(3):
        values = [f"{a} {b} {max(a, c)} {d} {drop}" for a, b, c, d, drop in rng.integers(0, 2, (50, 5))]
        (here / f"leaf{leaf}.csv").write_text("\n".join([" ".join(COLUMNS), *values]) + "\n")
    (here / "conf" / "predictor").mkdir(parents=True)
    mine = "_target_: foretail.models.drop.forest.ExtraTrees\nname: mine\ntrees: 3\n"
    (here / "conf" / "predictor" / "mine.yaml").write_text(mine)
    write_scenario(here)
    shutil.copytree(ROOT / "examples" / "switch_config", here / "examples" / "switch_config")
    for name in ("config_db.json", "lossy_th_-2.json", "lossy_th_1.json"):
        shutil.copy(ROOT / "examples" / "switch_config" / "config_db.json", here / name)
    shutil.copy(ROOT / "examples" / "policy_header" / "half_and_half.hpp", here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for command in COMMANDS:  # what later commands read
            rule = rule_of(command)
            if rule.tiny == SLOTTED or ("outputs/bursts" in command.text and "train" in command.words):
                assert cli.main(with_overrides(command, rule)) == 0, command.text
    return here


@pytest.fixture(scope="module")
def folder_of_ns3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder with a model of the tiny scenario."""
    here = tmp_path_factory.mktemp("reader of ns-3")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        write_scenario(here)
        assert (
            cli.main(["train", "scenario=tiny", "features=switch", "predictor=boosted_trees", "predictor.depth=3"]) == 0
        )
    return here


def write_scenario(folder: Path) -> None:
    """The scenario of the page on scenarios, where its first line says."""
    (text,) = [text for language, text in blocks(ROOT / "docs/guide/data.md") if language == "yaml"]
    file = folder / text.splitlines()[0].removeprefix("# ")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_every_rule_has_a_command() -> None:
    needed = {rule_of(command).pattern for command in COMMANDS}
    assert [rule.pattern for rule in RULES if rule.pattern not in needed] == []


def cases(how: str) -> list[object]:
    return [
        pytest.param(command, rule, id=f"{command.page}: {command.text}", marks=[pytest.mark.ns3] * rule.ns3)
        for command in COMMANDS
        if (rule := rule_of(command)).how == how
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(("command", "rule"), cases("compose"))
def test_settings_are_accepted(command: Command, rule: Rule, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    composed_settings(cli.as_run(cli.with_command(with_overrides(command, rule))))


@pytest.mark.nightly
@pytest.mark.parametrize(("command", "rule"), cases("run"))
def test_commands_run(
    command: Command, rule: Rule, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(request.getfixturevalue("folder_of_ns3" if rule.ns3 else "folder"))
    assert cli.main(with_overrides(command, rule)) in rule.codes
