"""Share of the gain of senders' tags that is left when a switch predicts the last packets of messages.

Two trees learn the tag from what a switch counts of flows, on runs of the training families: one reads all of it, the
other not how much of a message has come. They tell the last packets to rules that spare them, in the place of the
senders. J on other seeds of the training families chooses from which probability on they do so, and the held-out
families judge. Beside them stand a limit of the bytes so far, chosen in the same way, a rule by hand, and the policies
that read no tag.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import RULE_DEFAULTS, Policy, require_rule
from foretail.core.settings import setting
from foretail.features.catalog import FLOW_ENTRY_BITS, FLOW_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule as Tests
from foretail.models.ensemble.nested import tree_of_rule
from foretail.pipelines.comparison.statistics import PairedDifference, change_text, interval_text, mean_interval
from foretail.pipelines.data.collecting import collect_runs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.predictors import LEARNED, rule_of
from foretail_studies.benchmark.track import best_by_family, logs_by_family
from foretail_studies.families import Condition, Costs, Families, Rule, SharingPlan, measure_rules, require_apart

SENDER, NOBODY, NEVER, ALWAYS, BY_HAND = "sender", "nobody", "never", "always", "by hand"
"""Sources of the tag beside the trees and the limits; with `NOBODY` the policy reads no tag at all."""

SIZE, SHAPE, LIMIT = "tree of sizes", "tree", "sent"
KINDS = {SIZE: FLOW_FEATURES, SHAPE: tuple(name for name in FLOW_FEATURES if name != "flow_sent")}
"""Trees and what they read: with the bytes so far, a tree learns how long messages are."""
TRACED = "dt_alpha_2"
"""Policy of the runs on which the tree learns."""
LAST_CELLS = 17
"""Most cells of its message that come after a last packet: 17 of 256 bytes are three segments."""


@dataclass
class MessageEndSettings(SimulatedPointSettings, Families):
    """Rules that spare the last packets of a message, where a switch predicts which these are."""

    spared: dict[str, str] = setting(
        MISSING,
        "Rules that spare the last packets, each with the policy that does without their tag: names of sharing_rules, "
        "or options of the group policy.",
    )
    sharing_rules: dict[str, dict[str, int]] = setting(
        {}, "Sharing rules by their names, each with its numbers as in sharing_rule of evaluate."
    )
    traffic_ns: int = setting(MISSING, "Traffic time of these runs.", at_least=1)
    depth: int = setting(4, "Depth of the tree.", at_least=1, at_most=8)
    least_share: list[float] = setting(
        MISSING, "Probabilities, above one of which the tree tells a last packet.", above=0, at_most=0.99
    )
    most_sent_cells: list[int] = setting(
        MISSING,
        "Cells of a message that came before, up to one of which the limit tells a last packet.",
        at_least=0,
        at_most=65_534,
    )
    entries: list[int] = setting(
        MISSING, "Entries of the tables in which switches count flows; 0 means one for each.", at_least=0, at_most=2**24
    )
    training_seeds: list[int] = setting(MISSING, "Traffic seeds on which the tree learns.", at_least=1, at_most=2**30)
    validation_seeds: list[int] = setting(MISSING, "Traffic seeds on which J chooses.", at_least=1, at_most=2**30)
    seeds: list[int] = setting(MISSING, "Traffic seeds of the held-out families.", at_least=1, at_most=2**30)

    def check(self, where: str) -> None:
        """Raise ForetailError without families of both kinds, on seeds with two roles, and on rules that are none."""
        super().check(where)
        self.require_both_sides()
        require_apart(validation_seeds=self.validation_seeds, training_seeds=self.training_seeds)
        for name, numbers in self.sharing_rules.items():
            require_rule(f"sharing_rules.{name}", {**RULE_DEFAULTS, **numbers})


@dataclass(frozen=True)
class Counted:
    """Different packets of a run, as switches count their flows."""

    x: npt.NDArray[np.int32]  #: int32[n, features], in the order of `FLOW_FEATURES`
    last: npt.NDArray[np.bool_]  #: bool[n], whether they are among the last of their message
    share: npt.NDArray[np.float64]  #: float64[n], which share of the run's packets they are

    @classmethod
    def of(cls, dataset: Dataset) -> Counted:
        """Count the packets of a trace whose senders told how much of the message is left."""
        frame = dataset.frame([*FLOW_FEATURES, "message_left"])
        frame["last"] = frame.pop("message_left") <= LAST_CELLS
        counts = frame.value_counts(sort=False)
        table = counts.index.to_frame().to_numpy(np.int32)
        return cls(table[:, :-1], table[:, -1] > 0, counts.to_numpy(np.float64) / len(frame))

    def seen(
        self, names: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """Some features, labels and shares."""
        return self.x[:, [FLOW_FEATURES.index(name) for name in names]], self.last, self.share


@dataclass(frozen=True)
class Study:
    """All conditions, the rules, and what was simulated of them."""

    settings: MessageEndSettings
    plan: SharingPlan
    store: Store
    costs: Costs
    cell_bytes: int

    @classmethod
    def of(cls, settings: MessageEndSettings, store: Store) -> Study:
        """Compose everything; ForetailError on unknown policies, and on cells of several sizes."""
        named = [*settings.spared.values(), *(name for name in settings.spared if name not in settings.sharing_rules)]
        plan = SharingPlan.of(settings, settings.shared, settings.families, {one: {} for one in named})
        return cls(settings, replace(plan, rules={}), store, Costs(), plan.cell_bytes)

    def conditions(self, held_out: bool) -> list[Condition]:
        """Return the conditions that judge if `held_out`, else those that train."""
        return [where for where in self.plan.scenarios if self.settings.families[where.family].held_out == held_out]

    def traces(self, held_out: bool, seeds: Sequence[int]) -> Iterator[tuple[Condition, Dataset]]:
        """Datasets of all these conditions, collected now where the store has none."""
        policy = compose_policy(TRACED, "traced")
        for where in self.conditions(held_out):
            whole = self.plan.scenarios[where]
            scenario = replace(whole, traffic_ns=min(whole.traffic_ns, self.settings.traffic_ns))
            for one in collect_runs(self.settings, scenario, policy, seeds):
                yield where, Dataset.open(one.path)

    def inputs(self, names: Sequence[str]) -> list[FeatureInput]:
        """Return the inputs of a tree on some features."""
        return [FeatureInput.of(name, self.cell_bytes) for name in names]

    def learned(self, runs: Sequence[Counted], names: Sequence[str]) -> Ensemble:
        """A tree that gives the probability of a last packet from these features; every run counts the same."""
        tree = RandomForest(trees=1, depth=self.settings.depth, features_per_split=len(names), bootstrap=False)
        x, last, share = (np.concatenate(part) for part in zip(*(one.seen(names) for one in runs), strict=True))
        return tree.fit(x, last, share).to_ensemble(self.inputs(names))

    def rule_tree(self, tests: Tests) -> Ensemble:
        """A rule that tells the last packets, as a tree."""
        inputs, tree = self.inputs(FLOW_FEATURES), tree_of_rule(tests, FLOW_FEATURES)
        return Ensemble(tuple(inputs), (tree,), Fraction(1, 2), origin={"kind": "message_end_rule"})

    def policy(self, name: str, tells: Ensemble | None = None, entries: int = 0) -> Policy:
        """A rule that spares the last packets, as `tells` says which these are; as their senders say without it."""
        if name in self.settings.sharing_rules:
            trees = rule_of({**RULE_DEFAULTS, **self.settings.sharing_rules[name]}).ensemble(self.cell_bytes)
            policy = compose_policy(LEARNED, "spared").ask(export_to_store(trees, self.store).library)
        else:
            policy = compose_policy(name, "spared")
        if tells is None:
            return policy
        return replace(policy, message_end=str(export_to_store(tells, self.store).library), flow_entries=entries)

    def measure(self, policies: Mapping[Rule, Policy], conditions: Sequence[Condition], seeds: Sequence[int]) -> None:
        """Simulate what is not simulated yet."""
        plan = replace(self.plan, rules=policies)
        everywhere = {where: list(policies) for where in conditions}
        measure_rules(self.settings.experiment, self.settings, plan, self.costs, everywhere, seeds)


def show(settings: MessageEndSettings, run: Run) -> Shown:
    """Learn, choose on the training families, and judge on the others; what the store has is not simulated again."""
    study = Study.of(settings, run.store)
    runs = [Counted.of(dataset) for _, dataset in study.traces(False, settings.training_seeds)]
    learned = {kind: study.learned(runs, names) for kind, names in KINDS.items()}
    trees = {
        kind: {f"{kind} {p:g}": tree.with_threshold(Fraction(p)) for p in settings.least_share}
        for kind, tree in learned.items()
    }
    limits = {f"{LIMIT} {most}": study.rule_tree(("flow_sent", most, True, False)) for most in settings.most_sent_cells}
    as_long = ("left_like_last", LAST_CELLS, True, False)
    fixed = {
        BY_HAND: study.rule_tree(("short_packet", 0, as_long, True)),
        NEVER: study.rule_tree(False),
        ALWAYS: study.rule_tree(True),
    }
    kinds = {**trees, LIMIT: limits}
    all_trees = {**fixed, **{by: tells for group in kinds.values() for by, tells in group.items()}}

    training, held_out = study.conditions(False), study.conditions(True)
    chosen: dict[str, dict[str, str]] = {}  # by rule and kind
    judged: dict[str, dict[str, tuple[str, int | None]]] = {}  # by rule and row: who tells, and with which table
    for name, without in settings.spared.items():
        sender = Rule(name, SENDER)
        tried = {Rule(name, by): study.policy(name, tells) for by, tells in all_trees.items() if by not in fixed}
        study.measure({sender: study.policy(name), **tried}, training, settings.validation_seeds)
        chosen[name] = {
            kind: best_by_family(study.costs, training, [Rule(name, by) for by in group], sender).setting
            for kind, group in kinds.items()
        }
        of_table = chosen[name][SHAPE]
        rows: dict[str, tuple[str, int | None]] = {SENDER: (SENDER, None)}
        rows |= {f"{of_table}, {_table(entries)}": (of_table, entries) for entries in settings.entries}
        rows |= {by: (by, 0) for by in (chosen[name][SIZE], BY_HAND, chosen[name][LIMIT], NEVER, ALWAYS)}
        rows |= {NOBODY: (NOBODY, None)}
        judged[name] = rows
        policies = {
            Rule(name, row): compose_policy(without, "spared")
            if by == NOBODY
            else study.policy(name, all_trees.get(by), entries or 0)
            for row, (by, entries) in rows.items()
        }
        study.measure(policies, held_out, settings.seeds)
    frame = pd.DataFrame(
        _row(study, held_out, name, row, by, entries)
        for name, rows in judged.items()
        for row, (by, entries) in rows.items()
    )
    agreement = _agreement(study, all_trees, settings.seeds[:1])
    files = {run.folder / "tree.json": chosen[next(iter(settings.spared))][SHAPE], run.folder / "by_hand.json": BY_HAND}
    for path, by in files.items():
        all_trees[by].save(path)
    return Shown(
        frame,
        [
            _table_of(frame),
            _table_of_agreement(agreement, {by for of_rule in chosen.values() for by in of_rule.values()} | set(fixed)),
        ],
        files=list(files),
        notes=(
            f"J on held-out families, seeds {', '.join(map(str, settings.seeds))}; the tag's gain is that of the "
            "sender's tag over the policy without one, in log J; intervals are the 95 % ones over seeds.",
            study.costs.note,
        ),
        verdict=_verdict(frame),
        details={"agreement": agreement.to_dict("records")},
    )


MESSAGE_END = FunctionExperiment(MessageEndSettings, show)


def _table(entries: int) -> str:
    return f"{entries:,} entries" if entries else "all flows"


def _row(
    study: Study, conditions: Sequence[Condition], name: str, row: str, by: str, entries: int | None
) -> dict[str, Cell]:
    """Return the row of one rule whose last packets are told in one way.

    ``change``: log J less that of the rule with the sender's tag. ``survives``: share of the tag's gain that is left,
    %, a mean over seeds. ``bits``: of a switch's table. ``gain``: that of the tag, in log J.
    """
    none, tag, own = (
        logs_by_family(study.costs, conditions, Rule(name, one), Rule(name, SENDER)).mean(axis=0)
        for one in (NOBODY, SENDER, row)
    )
    gain, survives = none - tag, mean_interval(list(100 * (none - own) / (none - tag)))
    change = mean_interval(list(own))
    return {
        "rule": name,
        "told by": row,
        "entries": entries,
        "bits": entries * FLOW_ENTRY_BITS if entries and by not in (NEVER, ALWAYS) else None,
        **change.columns("change"),
        **survives.columns("survives"),
        "gain": float(gain.mean()),
    }


def _table_of(frame: pd.DataFrame) -> Table:
    return Table.of_rows(
        "Who tells the last packets of a message: J, and the share of the tag's gain that survives",
        (
            {
                "rule": row["rule"],
                "told by": row["told by"],
                "kbit of a switch": None if pd.isna(row["bits"]) else row["bits"] / 1000,
                "J against the sender's tag": change_text(PairedDifference.of_columns(row, "change")),
                "survives, %": interval_text(PairedDifference.of_columns(row, "survives")),
            }
            for row in frame.to_dict("records")
        ),
    )


def _agreement(study: Study, trees: Mapping[str, Ensemble], seeds: Sequence[int]) -> pd.DataFrame:
    """How far each way to tell agrees with the tag, on traces of the held-out families that count all flows.

    ``told``: share of the packets that are told as last. ``found``: share of the last packets that are told. ``right``:
    share of the told packets that are last. All are means over conditions.
    """
    rows = []
    for where, dataset in study.traces(True, seeds):
        run = Counted.of(dataset)
        for by, tells in trees.items():
            says = tells.exceeds(run.seen([one.name for one in tells.features])[0])
            both, share = run.share[says & run.last].sum(), run.share[says].sum()
            recall = both / last if (last := run.share[run.last].sum()) else math.nan
            rows.append(
                {
                    "by": by,
                    "where": str(where),
                    "told": share,
                    "found": recall,
                    "right": both / share if share else math.nan,
                }
            )
    return pd.DataFrame(rows).groupby("by", sort=False)[["told", "found", "right"]].mean().reset_index()


def _table_of_agreement(agreement: pd.DataFrame, shown: set[str]) -> Table:
    return Table.of_rows(
        "What is told on held-out families, means over conditions",
        (
            {"told by": row["by"], **{f"{name}, %": 100 * row[name] for name in ("told", "found", "right")}}
            for row in agreement.to_dict("records")
            if row["by"] in shown
        ),
        "told: share of all packets; found: share of the last that are told; right: share of the told that are last",
    )


def _verdict(frame: pd.DataFrame) -> list[str]:
    """The share of the gain that survives, for each rule, by the tree on all flows and by the limit."""
    sentences = []
    for name, rows in frame.groupby("rule", sort=False):
        by = {
            row["told by"]: interval_text(PairedDifference.of_columns(row, "survives"), "")
            for row in rows.to_dict("records")
        }
        tree, limit = (next(text for one, text in by.items() if one.startswith(kind)) for kind in (SHAPE, LIMIT))
        sentences.append(
            f"{name}: {tree} % of the tag's gain survives with the tree, {limit} % with a limit of the bytes so far."
        )
    return sentences
