"""Predicted alphas as SONiC profiles and P4 register writes: read back, followed, and refused when anything differs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.passes import lower
from foretail.export.proof import ProofError
from foretail.export.sonic.target import SHIFT, ExportedRules, Sonic
from foretail.export.target import Files, export, prove_files
from foretail.features.catalog import COUNTERS, counter_params
from foretail.models.drop.thresholds.alpha_tree import within_exponents
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.pipelines import cli
from foretail.sim_bridge.imports.sonic.config import read_config
from foretail.sim_bridge.imports.sonic.tables import Profile
from tests.forests import alpha_exponents
from tests.models.drop.test_predictor import model as stump

pytestmark = pytest.mark.slow

LEAF = Path(__file__).parents[1] / "sim_bridge" / "imports" / "sonic" / "leaf_32x100g.json"
READ = ("queue_dropped", "switch_marked", "queue_flows")


def of(root: Rule) -> Ensemble:
    inputs = tuple(FeatureInput(name, counter_params(1_000_000), 8) for name in READ)
    return Ensemble(inputs, (tree_of_rule(root, READ),), Fraction(0), output="value")


def trees() -> st.SearchStrategy[Ensemble]:
    """Of any shape, with leaves that siblings may share."""
    leaves = st.integers(-7, 6).map(float)

    def inner(nodes: st.SearchStrategy[Rule]) -> st.SearchStrategy[Rule]:
        return st.tuples(st.sampled_from(READ), st.integers(0, 254), nodes, nodes)

    return st.recursive(leaves, inner, max_leaves=9).map(of)


TREE = of(("queue_dropped", 12, ("switch_marked", 99, 4.0, -2.0), 6.0))


def files_of(folder: Path) -> tuple[bytes, bytes, bytes]:
    config, rules, p4 = ((folder / f"slow{end}").read_bytes() for end in (".json", "_rules.json", ".p4"))
    return config, rules, p4


def test_the_profile_is_read_back(tmp_path: Path) -> None:
    done = export(TREE, Sonic("lossy", 1518), tmp_path / "out", "slow")
    assert done.certificate.method == "cells"
    config, rules, p4 = files_of(tmp_path / "out")
    profiles = json.loads(config)["BUFFER_PROFILE"]
    assert profiles == {
        "slow_alpha_1_4": {"pool": "lossy", "size": "1518", "dynamic_th": "-2"},
        "slow_alpha_16": {"pool": "lossy", "size": "1518", "dynamic_th": "4"},
        "slow_alpha_64": {"pool": "lossy", "size": "1518", "dynamic_th": "6"},
    }
    read = ExportedRules.read(config, rules, p4)
    assert read.interval_ns == 1_000_000
    counters = {"queue_dropped": 12, "switch_marked": 100, "queue_flows": 0}
    profile = read.profile(counters)
    assert profile.name == "slow_alpha_1_4"
    assert profile.command.format(queue=17) == f"register_write alpha_shift 17 {-2 + SHIFT}"


def test_a_platform_takes_some_alphas_only() -> None:
    assert within_exponents(TREE, -2, 6, nearest=False) is TREE
    with pytest.raises(
        ForetailError, match=r"sets alpha = 2\^4, and the platform takes 2\^-7 to 2\^3, of which 2\^3 is"
    ):
        within_exponents(TREE, -7, 3, nearest=False)
    near = within_exponents(TREE, -1, 3, nearest=True)
    assert near == of(("queue_dropped", 12, ("switch_marked", 99, 3.0, -1.0), 3.0))


def test_a_configuration_is_written_whole(tmp_path: Path) -> None:
    before = read_config(LEAF)
    target = Sonic(size_bytes=1536, config=before)
    export(TREE, target, tmp_path / "out", "slow")
    assert set(files_of(tmp_path / "out")) == set(
        Sonic(size_bytes=1536).render(lower(TREE), "slow", 10**6).files.values()
    )
    after = read_config(tmp_path / "out" / "slow_config_db.json")
    assert (after.pools, after.rest) == (before.pools, before.rest)
    added = {name: profile for name, profile in after.profiles.items() if name not in before.profiles}
    assert set(added) == {"slow_alpha_1_4", "slow_alpha_16", "slow_alpha_64"}
    assert added["slow_alpha_16"] == Profile("egress_lossy_pool", 1536, dynamic_th=4)
    for name, port in after.ports.items():
        assert port.groups == before.ports[name].groups
        lossy = dict.fromkeys((0, 1, 2, 5, 6), "slow_alpha_16")  # the leaf of an idle interval
        assert port.queues == {**before.ports[name].queues, **lossy}
    export(TREE, Sonic(size_bytes=1536, config=after), tmp_path / "again", "slow")
    assert read_config(tmp_path / "again" / "slow_config_db.json") == after


def test_a_configuration_that_says_something_else_is_noticed() -> None:
    lowered, target = lower(TREE), Sonic(size_bytes=1536, config=read_config(LEAF))
    files = dict(target.render(lowered, "slow", 10**6).files)
    prove_files(lowered, target, files)
    for change in (
        lambda text: text.replace('"dynamic_th": "4"', '"dynamic_th": "3"'),
        lambda text: text.replace('"profile": "slow_alpha_16"', '"profile": "slow_alpha_64"', 1),
        lambda text: text.replace('"hostname": "leaf1"', '"hostname": "leaf2"'),
    ):
        with pytest.raises(ProofError, match="configuration has other profiles or queues"):
            prove_files(lowered, target, _swap(files, "slow_config_db.json", change))


@pytest.mark.nightly
@given(trees(), st.integers(0, 2**32))
def test_what_the_files_say_is_what_the_model_says(tree: Ensemble, seed: int) -> None:
    lowered = lower(tree)
    files = Sonic().render(lowered, "slow", 10**6).files
    prove_files(lowered, Sonic(), files)
    read = ExportedRules.read(files["slow.json"], files["slow_rules.json"], files["slow.p4"])
    rows = np.random.default_rng(seed).integers(0, 256, (50, len(COUNTERS)))
    for row, exponent in zip(rows, alpha_exponents(tree, rows).tolist(), strict=True):
        counters = dict(zip([counter.name for counter in COUNTERS], row.tolist(), strict=True))
        profile = read.profile(counters)
        assert profile.exponent == exponent
        free, shift = 123_456, int(profile.command.split()[-1])
        assert (free << shift) >> SHIFT == int(free * 2.0**exponent)  # what the P4 control computes


def _numbers(content: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(rb"-?\d+", content)]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["slow.json", "slow_rules.json", "slow.p4"])
def test_every_changed_number_is_noticed(name: str) -> None:
    lowered = lower(TREE)
    files = dict(Sonic().render(lowered, "slow", 10**6).files)
    harmless = 0
    for low, high in _numbers(files[name]):
        changed = b"%d" % (int(files[name][low:high]) + 1)
        content = files[name][:low] + changed + files[name][high:]
        try:
            prove_files(lowered, Sonic(), {**files, name: content})
        except ForetailError:
            continue
        harmless += 1
    # names of profiles, the reserved size, widths and the licence in comments mean nothing to the alpha
    assert harmless < len(_numbers(files[name]))


def _swap(files: dict[str, bytes], name: str, change: Callable[[str], str]) -> Files:
    text = files[name].decode()
    assert change(text) != text
    return {**files, name: change(text).encode()}


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("slow.json", lambda text: text.replace('"dynamic_th": "4"', '"dynamic_th": "3"'), "its register another"),
        ("slow.json", lambda text: text.replace('"dynamic_th": "4"', '"static_th": "4"'), "other fields"),
        ("slow.json", lambda text: text.replace("slow_alpha_16", "slow_alpha_8"), "profiles of both files differ"),
        ("slow.json", lambda text: text[:-4], "it does not hold what export writes"),
        ("slow.p4", lambda text: text.replace(">> 7", ">> 6"), "its register another"),
        ("slow.p4", lambda text: text.replace(">> 7", ""), "the P4 file shifts nothing"),
        ("slow_rules.json", lambda text: text.replace("register_write", "register_reset"), "has the command"),
        ("slow_rules.json", lambda text: text.replace('"if"', '"when"'), "it does not hold what export writes"),
        ("slow_rules.json", lambda text: text.replace("255", "256"), "a rule has the bounds"),
        ("slow_rules.json", lambda text: text.replace("1000000", "true"), "is not a whole number"),
        ("slow_rules.json", lambda text: text.replace("1000000", "100000"), "another interval"),
    ],
)
def test_files_that_say_something_else_are_refused(name: str, change: Callable[[str], str], sentence: str) -> None:
    lowered = lower(TREE)
    files = dict(Sonic().render(lowered, "slow", 10**6).files)
    with pytest.raises(ProofError) as error:
        prove_files(lowered, Sonic(), _swap(files, name, change))
    assert sentence in str(error.value)


def test_a_rule_that_is_missing_or_twice_is_noticed() -> None:
    lowered = lower(TREE)
    files = dict(Sonic().render(lowered, "slow", 10**6).files)
    document = json.loads(files["slow_rules.json"])
    for rules in (document["rules"][1:], [*document["rules"], document["rules"][0]]):
        text = json.dumps({**document, "rules": rules})
        with pytest.raises(ProofError, match="rules hold at"):
            prove_files(lowered, Sonic(), {**files, "slow_rules.json": text.encode()})


def test_a_model_of_drops_has_no_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stump(name="fill", params="").save(tmp_path / "drops.json")
    stump().save(tmp_path / "alphas.json")
    place = f"hydra.run.dir={tmp_path / 'run'}"
    assert cli.main(["export", f"model={tmp_path / 'drops.json'}", "target=sonic", place]) == 2
    assert "predicts no alpha" in capsys.readouterr().err
    assert cli.main(["export", f"model={tmp_path / 'alphas.json'}", "target=sonic", "sonic.pool=a b", place]) == 2
    assert "names no pool" in capsys.readouterr().err
    assert cli.main(["export", f"model={tmp_path / 'alphas.json'}", "target=sonic", place]) == 0
    assert (tmp_path / "run" / "sonic" / "drop_predictor.json").is_file()
    command = ["export", f"model={tmp_path / 'alphas.json'}", "target=sonic", "sonic.size_bytes=1536", place]
    assert cli.main([*command, f"sonic.config={LEAF}"]) == 0
    assert (tmp_path / "run" / "sonic" / "drop_predictor_config_db.json").is_file()
    assert cli.main([*command, f"sonic.config={tmp_path / 'alphas.json'}"]) == 2
    assert "PORT has 0 ports" in capsys.readouterr().err
