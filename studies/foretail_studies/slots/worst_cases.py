"""Short sequences on which a policy, or a published claim about it, does badly: the worst that a search finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from foretail.configs.schema.experiment import PointSettings
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.builds import native_policy, policy_identity
from foretail.sim_bridge.policies import POLICIES, is_guest, may_ask, policy_name

GUARDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "guarded_two": {"answers_needed": 2},
        "guarded_budget": {"answers_needed": 1, "drop_budget_packets": 1},
    }
)
"""Guarded Credence with other guards than its defaults, by what is measured: settings of the slotted model."""

TITLES = {name: policy.title for name, policy in POLICIES.items()} | {
    "opt": "OPT",
    "tn": "TN",
    "fn": "FN",
    "guarded_two": "Guarded, two answers",
    "guarded_budget": "Guarded, one drop in 25 slots",
    "guarded_told": "Guarded, told right",
}
"""Short names of what is measured; "reduced" is called so."""


def nth(ports: int, buffer: int) -> Fraction:
    """Return N, the bound for whoever accepts into an empty buffer, proven in docs/reports/theory.md."""
    return Fraction(ports)


def by_safeguard(ports: int, buffer: int) -> Fraction:
    """Return the ratio that the safeguard alone bounds, at any load: N, or B over floor(B / N) where that is more."""
    return max(Fraction(ports), Fraction(buffer, buffer // ports))


@dataclass(frozen=True)
class Objective:
    """A ratio to make large."""

    text: str  #: the ratio in words
    counts: tuple[str, ...]  #: what has to be measured, as in :func:`measure`
    #: the ratio from the counts and N; None where it is not defined
    ratio: Callable[[Mapping[str, int], int], Fraction | None]
    #: the most that the literature claims, from N; None where it claims nothing
    claimed: Callable[[int], float | None] = lambda ports: None
    #: the most that it can be, by the proofs in docs/reports/theory.md, from N and B; None where there is none
    proven: Callable[[int, int], Fraction | None] = lambda ports, buffer: None
    predicted: bool = False  #: search predictions too; otherwise all packets are predicted to pass
    any_load: bool = False  #: up to 2 B packets a slot, beyond the papers' model; otherwise up to N


def over(numerator: str, denominator: str, **more: Any) -> Objective:
    """Return the objective to make one count large against another."""

    def ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
        return Fraction(counts[numerator], counts[denominator]) if counts[denominator] else None

    text = f"{TITLES.get(numerator, numerator)} / {TITLES.get(denominator, denominator)}"
    return Objective(**{"text": text, **more}, counts=(numerator, denominator), ratio=ratio)


def closed_form_ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
    """Return eta over its closed form: LQD, which both have as numerator, cancels."""
    if not counts["reduced"]:
        return None
    return Fraction(max(0, counts["tn"] - (ports - 1) * counts["fn"]), counts["reduced"])


def theorem_1(policy: str, **more: Any) -> Objective:
    """Return the objective of OPT over a policy times eta."""

    def ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
        if not (counts["lqd"] and counts[policy]):
            return None
        return Fraction(counts["opt"] * counts["reduced"], counts[policy] * counts["lqd"])

    text = f"OPT / ({TITLES[policy]} · η)"
    return Objective(text, ("opt", "lqd", "reduced", policy), ratio, predicted=True, **more)


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "cs": over("opt", "cs", text="OPT / Complete Sharing", claimed=lambda ports: ports + 1, proven=nth),
        "dt": over("opt", "dt", proven=nth),
        "harmonic": over("opt", "harmonic", claimed=lambda ports: math.log(ports) + 2, proven=nth),
        "followlqd": over("opt", "followlqd", proven=nth),
        "lqd": over("opt", "lqd", claimed=lambda ports: 1.707, proven=nth),
        "credence": over("opt", "credence", claimed=float, predicted=True, proven=nth),
        "guarded": over("opt", "guarded", predicted=True, proven=nth),
        "guarded_two_answers": over("opt", "guarded_two", predicted=True, proven=nth),
        "guarded_budget": over("opt", "guarded_budget", predicted=True, proven=nth),
        "followlqd_to_lqd": over("lqd", "followlqd", proven=nth),
        "credence_to_lqd": over("lqd", "credence", predicted=True, proven=nth),
        "guarded_to_lqd": over("lqd", "guarded", predicted=True, proven=nth),
        "guarded_told_right": over("lqd", "guarded_told", proven=nth),
        "theorem_1": theorem_1("credence", claimed=lambda ports: 1.707),
        "theorem_1_guarded": theorem_1("guarded"),
        "lemma_1": over(  # eta is LQD / reduced
            "reduced", "credence", text="LQD / (Credence · η)", claimed=lambda ports: 1.0, predicted=True
        ),
        "theorem_2": Objective(
            "η / closed form, always accepting",
            ("lqd", "reduced", "tn", "fn"),
            closed_form_ratio,
            claimed=lambda ports: 1.0,
        ),
        "cs_any_load": over(
            "opt",
            "cs",
            text="OPT / Complete Sharing, any load",
            claimed=float,
            proven=nth,  # `CompleteSharingLowerBound` has the argument
            any_load=True,
        ),
        "followlqd_any_load": over("opt", "followlqd", text="OPT / FollowLQD, any load", any_load=True),
        "credence_any_load": over(
            "opt",
            "credence",
            text="OPT / Credence, any load",
            predicted=True,
            any_load=True,
            proven=by_safeguard,
        ),
        "guarded_any_load": over(
            "opt",
            "guarded",
            text="OPT / Guarded Credence, any load",
            predicted=True,
            any_load=True,
            proven=by_safeguard,
        ),
    }
)


def objective_of(name: str) -> Objective:
    """Return an objective of ``OBJECTIVES``, or OPT over a policy in a header, ``HEADER.hpp:TYPE``.

    The predictions are searched too, for its header may ask. ForetailError on another name.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if not is_guest(name):
        raise ForetailError(
            f"no objective {name!r}: choose one of {', '.join(OBJECTIVES)}, or a policy as in my_rule.hpp:MyRule"
        )
    return over("opt", name, text=f"OPT / {policy_name(name)}", predicted=True)


@dataclass(frozen=True)
class WorstCase:
    """A sequence and what it shows."""

    objective: str  #: as in :func:`objective_of`
    ports: int  #: N
    buffer: int  #: B, in packets
    slots: str  #: the arrivals, as the papers write them
    predictions: str  #: a digit per packet, 1 = drop; empty where predictions play no role
    counts: dict[str, int]  #: what :func:`measure` finds

    @property
    def ratio(self) -> Fraction:
        """The ratio of the objective."""
        return objective_of(self.objective).ratio(self.counts, self.ports) or Fraction(0)

    @property
    def violates(self) -> bool:
        """True if the ratio is above the one that the literature claims."""
        claimed = objective_of(self.objective).claimed(self.ports)
        return claimed is not None and float(self.ratio) > claimed

    @property
    def proven(self) -> Fraction | None:
        """The most that the ratio can be in this switch; None where nothing is proven."""
        return objective_of(self.objective).proven(self.ports, self.buffer)


def measure(
    names: Iterable[str],
    ports: int,
    buffer: int,
    slot: Sequence[int],
    port: Sequence[int],
    predictions: Sequence[int],
) -> dict[str, int]:
    """Count what the named send or are.

    A policy, one in a header too: packets it transmits. opt: the most that any policy could. reduced: FollowLQD
    without the packets that are predicted to drop. tn, fn: packets predicted to pass that LQD transmits, drops. A name
    of `GUARDS`: Guarded Credence so set; guarded_told: the same by default, told what LQD does. All by default rules;
    predictions, one per packet, are for all other policies that ask.
    """
    slots, ports_of, drop = np.array(slot, np.int64), np.array(port, np.int32), np.array(predictions, np.uint8)
    counts: dict[str, int] = {}
    for name in names:
        if name == "opt":
            counts[name] = late_qd(ports, buffer, slots, ports_of)["transmitted"]
        elif name == "reduced":
            accepted = drop == 0
            counts[name] = slotted("followlqd", ports, buffer, slots[accepted], ports_of[accepted])["transmitted"]
        elif name in ("tn", "fn"):
            label = slotted("lqd", ports, buffer, slots, ports_of)["lqd_drop"]
            counts[name] = int(np.count_nonzero((drop == 0) & (label == (name == "fn"))))
        elif name == "guarded_told":
            label = slotted("lqd", ports, buffer, slots, ports_of)["lqd_drop"]
            counts[name] = slotted("guarded", ports, buffer, slots, ports_of, label, labels=False)["transmitted"]
        elif name in GUARDS:
            guarded = slotted("guarded", ports, buffer, slots, ports_of, drop, labels=False, **GUARDS[name])
            counts[name] = guarded["transmitted"]
        else:
            answers = drop if may_ask(name) else None
            counts[name] = slotted(native_policy(name), ports, buffer, slots, ports_of, answers, labels=False)[
                "transmitted"
            ]
    return counts


MAX_SLOTS = 12
SLACK = 0.1
"""By so much may a change lower the ratio at first; by nothing in the end."""
SWITCHES = ((2, 2), (2, 3), (2, 4), (2, 6), (2, 8), (3, 3), (3, 5), (3, 6), (3, 8), (4, 4), (4, 6), (4, 8))
"""Ports and buffers (packets) that the search tries. B >= N: below, Credence may drop all there is."""

Slots = list[list[tuple[int, int]]]
"""Packets of every slot in order of arrival: port and prediction."""


def search(
    objective: str, ports: int, buffer: int, *, seed: int = 0, restarts: int = 8, steps: int = 3000
) -> WorstCase:
    """Look for a sequence with a high ratio, then take out of it what does not matter.

    ForetailError on an unknown objective or a switch out of range.

    Parameters
    ----------
    objective : as in :func:`objective_of`
    ports, buffer : N, 2 to 10 (ports are written as one digit), and B >= N
    seed : the same seed finds the same sequence
    restarts, steps : so many sequences are grown from nothing, each by so many changes
    """
    wanted = objective_of(objective)
    if not 2 <= ports <= min(10, buffer):
        raise ForetailError(f"ports must be from 2 to 10 and at most the buffer, {buffer}: {ports}")
    draw = np.random.default_rng(seed)
    most = 2 * buffer if wanted.any_load else ports
    best = _measured(objective, ports, buffer, [])
    for _ in range(restarts):
        slots: Slots = []
        ratio = Fraction(0)
        top, top_ratio = slots, ratio
        for step in range(steps):
            changed = _changed(slots, ports, most, wanted.predicted, draw)
            new = _measured(objective, ports, buffer, changed).ratio
            if float(new) >= float(ratio) - SLACK * (1 - step / steps):
                slots, ratio = changed, new
                if ratio > top_ratio:
                    top, top_ratio = slots, ratio
        if top_ratio > best.ratio:
            best = _measured(objective, ports, buffer, _shrunk(objective, ports, buffer, top))
    return best


def _shrunk(objective: str, ports: int, buffer: int, slots: Slots) -> Slots:
    """Take out slots, packets and predicted drops, one at a time, while the ratio does not fall."""
    ratio = _measured(objective, ports, buffer, slots).ratio
    again = True
    while again:
        again = False
        for smaller in _smaller(slots):
            if _measured(objective, ports, buffer, smaller).ratio >= ratio:
                slots, again = smaller, True
                break
    return slots


def _smaller(slots: Slots) -> Iterator[Slots]:
    for number, slot in enumerate(slots):
        rest = slots[:number], slots[number + 1 :]
        yield rest[0] + rest[1]
        for at, (port, drop) in enumerate(slot):
            yield [*rest[0], slot[:at] + slot[at + 1 :], *rest[1]]
            if drop:
                yield [*rest[0], [*slot[:at], (port, 0), *slot[at + 1 :]], *rest[1]]


def _changed(slots: Slots, ports: int, per_slot: int, predicted: bool, draw: np.random.Generator) -> Slots:
    """Change one to four things, then cut off empty slots at both ends."""
    new = [list(slot) for slot in slots]

    def any_packet() -> tuple[int, int]:
        return int(draw.integers(ports)), int(predicted and draw.integers(2))

    for _ in range(draw.integers(1, 5)):
        kind = draw.integers(6)
        if kind == 0 or not new:
            if len(new) < MAX_SLOTS:  # a new slot: empty, copied, or a burst
                copied = new[draw.integers(len(new))] if new else []
                burst = [any_packet()] * int(draw.integers(per_slot + 1))
                new.insert(int(draw.integers(len(new) + 1)), list((copied, burst, [])[draw.integers(3)]))
            continue
        slot = new[draw.integers(len(new))]
        at = int(draw.integers(len(slot) + 1))
        if kind == 1:
            new.remove(slot)
        elif kind == 2 and len(slot) < per_slot:
            slot.insert(at, any_packet())
        elif at == len(slot):
            continue
        elif kind == 3:
            slot.pop(at)
        elif kind == 4 and predicted:
            slot[at] = (slot[at][0], 1 - slot[at][1])
        else:
            slot[at] = any_packet()
    while new and not new[0]:
        new.pop(0)
    while new and not new[-1]:
        new.pop()
    return new


def _measured(objective: str, ports: int, buffer: int, slots: Slots) -> WorstCase:
    wanted = objective_of(objective)
    slot = [number for number, packets in enumerate(slots) for _ in packets]
    port = [port for packets in slots for port, _ in packets]
    predictions = [drop for packets in slots for _, drop in packets]
    return WorstCase(
        objective,
        ports,
        buffer,
        "".join(f"[{''.join(str(port) for port, _ in packets)}]" for packets in slots),
        "".join(map(str, predictions)) if wanted.predicted else "",
        measure(wanted.counts, ports, buffer, slot, port, predictions),
    )


@dataclass
class WorstCaseSettings(PointSettings):
    """Ratios that are made large, and how long the search takes."""

    objectives: list[str] = setting(
        list(OBJECTIVES), "Ratios by name, or a policy in a header, as my_rule.hpp:MyRule, whose OPT / policy is one."
    )
    seed: int = setting(0, "The same seed finds the same sequences.", at_least=0)
    restarts: int = setting(16, "Sequences that are grown for each ratio and switch.", at_least=1)
    steps: int = setting(4000, "Changes to each of them.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a ratio that is not known."""
        super().check(where)
        for name in self.objectives:
            objective_of(name)


@dataclass(frozen=True)
class SearchCase:
    """A search on one switch."""

    objective: str
    ports: int
    buffer: int


def _cases(settings: WorstCaseSettings) -> Iterable[SearchCase]:
    return (SearchCase(name, *switch) for name in settings.objectives for switch in SWITCHES)


def _measure(case: SearchCase, so_far: SoFar, settings: WorstCaseSettings) -> dict[str, Any]:
    worst = search(
        case.objective,
        case.ports,
        case.buffer,
        seed=settings.seed,
        restarts=settings.restarts,
        steps=settings.steps,
    )
    return {"slots": worst.slots, "predictions": worst.predictions, "counts": worst.counts}


def _rows(case: SearchCase, measurement: Mapping[str, Any], settings: WorstCaseSettings) -> Mapping[str, Any]:
    worst = WorstCase(**asdict(case), **measurement)
    return {**measurement, "ratio": float(worst.ratio), "violates": worst.violates}


def show_worst_cases(rows: pd.DataFrame, settings: WorstCaseSettings) -> Shown:
    """The worst switch of every ratio and number of ports."""
    worst = rows.loc[rows.groupby(["objective", "ports"], sort=False)["ratio"].idxmax()]
    cells: list[tuple[Cell, ...]] = []
    for row in worst[[field.name for field in fields(WorstCase)]].to_numpy().tolist():
        case = WorstCase(*row)
        objective = objective_of(case.objective)
        claimed = objective.claimed(case.ports)
        counts = ", ".join(f"{TITLES.get(name, policy_name(name))} {count}" for name, count in case.counts.items())
        verdict = "no claim" if claimed is None else "exceeds the claim" if case.violates else "within the claim"
        proven = None if case.proven is None else str(case.proven)
        switch = (objective.text, case.ports, case.buffer, case.slots, case.predictions, counts)
        cells.append((*switch, float(case.ratio), claimed, verdict, proven))
    columns = (
        "ratio",
        "N",
        "B",
        "slots",
        "predictions",
        "counts",
        "largest",
        "claimed",
        "verdict",
        "proven",
    )
    above = sorted({objective_of(name).text for name in worst[worst["violates"]]["objective"]})
    sentence = f"{', '.join(above) or 'No ratio'} exceeds what is claimed."
    return Shown(worst.reset_index(drop=True), [Table("Worst cases", columns, tuple(cells))], verdict=[sentence])


WORST_CASES = PointExperiment(
    settings=WorstCaseSettings,
    kind="worst_cases",
    cases=_cases,
    name=lambda case: f"{case.objective}, {case.ports} ports, buffer {case.buffer}",
    measure=_measure,
    rows=_rows,
    show=show_worst_cases,
    code=("foretail_studies.slots.worst_cases",),
    varied=("objectives",),
    depends_on=lambda case, settings: {"policy": policy_identity(case.objective) if is_guest(case.objective) else None},
)
