"""Search for short arrival sequences on which a policy, or a published claim about it, does badly.

A worst case of a few slots can be read, followed by hand and kept as a test. The search is hill climbing with restarts:
change the sequence and, for Credence, the predictions at random, and keep the change unless it is worse by more than a
slack that shrinks to nothing. Its result is a lower bound of the worst ratio, no more. Sequences are written as in the
papers: ``[012][][11]`` is three slots with the ports of their arrivals, in order; predictions have a digit per packet,
1 = drop.

``python -m foretail.sim_bridge.open_loop.worst_case`` searches and prints what it found as a table.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from foretail.features.errors import ForetailError
from foretail.sim_bridge._native import late_qd, slotted

MAX_SLOTS = 12
SLACK = 0.1
"""By so much may a change lower the ratio at first; by nothing in the end."""
SWITCHES = ((2, 2), (2, 3), (2, 4), (2, 6), (2, 8), (3, 3), (3, 5), (3, 6), (3, 8), (4, 4), (4, 6), (4, 8))
"""Ports and buffers (packets) that the search tries. B >= N: below, Credence may drop all there is."""

Slots = list[list[tuple[int, int]]]
"""Of every slot the packets in order of arrival: port and prediction."""


@dataclass(frozen=True)
class Objective:
    """A ratio to make large.

    Attributes
    ----------
    text : str
        The ratio in words.
    counts : tuple of str
        What has to be measured, as in :func:`measure`.
    ratio : function
        The ratio from the counts and N; None where it is not defined.
    claimed : function
        The most that the literature claims, from N; None where it claims nothing.
    predicted : bool
        Search predictions too; otherwise all packets are predicted to pass.
    any_load : bool
        Up to 2 B packets a slot, beyond the papers' model; otherwise up to N.
    """

    text: str
    counts: tuple[str, ...]
    ratio: Callable[[Mapping[str, int], int], Fraction | None]
    claimed: Callable[[int], float | None] = lambda ports: None
    predicted: bool = False
    any_load: bool = False


def over(numerator: str, denominator: str, **more: Any) -> Objective:
    """Return the objective to make one count large against another."""

    def ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
        return Fraction(counts[numerator], counts[denominator]) if counts[denominator] else None

    names = {"opt": "OPT", "lqd": "LQD", "followlqd": "FollowLQD", "cs": "Complete Sharing", "dt": "DT"}
    text = " / ".join(names.get(name, name.capitalize()) for name in (numerator, denominator))
    return Objective(**{"text": text, **more}, counts=(numerator, denominator), ratio=ratio)


def closed_form_ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
    """Return eta over its closed form: LQD, which both have as numerator, cancels."""
    if not counts["reduced"]:
        return None
    return Fraction(max(0, counts["tn"] - (ports - 1) * counts["fn"]), counts["reduced"])


def theorem_1_ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
    """Return OPT over Credence times eta."""
    if not (counts["lqd"] and counts["credence"]):
        return None
    return Fraction(counts["opt"] * counts["reduced"], counts["credence"] * counts["lqd"])


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "cs": over("opt", "cs", claimed=lambda ports: ports + 1),
        "dt": over("opt", "dt"),
        "harmonic": over("opt", "harmonic", claimed=lambda ports: math.log(ports) + 2),
        "followlqd": over("opt", "followlqd"),
        "lqd": over("opt", "lqd", claimed=lambda ports: 1.707),
        "credence": over("opt", "credence", claimed=float, predicted=True),
        "followlqd_to_lqd": over("lqd", "followlqd"),
        "credence_to_lqd": over("lqd", "credence", predicted=True),
        "theorem_1": Objective(
            "OPT / (Credence · η)",
            ("opt", "lqd", "reduced", "credence"),
            theorem_1_ratio,
            claimed=lambda ports: 1.707,
            predicted=True,
        ),
        "lemma_1": over(  # eta is LQD / reduced
            "reduced", "credence", text="LQD / (Credence · η)", claimed=lambda ports: 1.0, predicted=True
        ),
        "theorem_2": Objective(
            "η / closed form, always accepting",
            ("lqd", "reduced", "tn", "fn"),
            closed_form_ratio,
            claimed=lambda ports: 1.0,
        ),
        "cs_any_load": over("opt", "cs", text="OPT / Complete Sharing, any load", claimed=float, any_load=True),
        "followlqd_any_load": over("opt", "followlqd", text="OPT / FollowLQD, any load", any_load=True),
        "credence_any_load": over(
            "opt", "credence", text="OPT / Credence, any load", claimed=float, predicted=True, any_load=True
        ),
    }
)


@dataclass(frozen=True)
class WorstCase:
    """A sequence and what it shows.

    Attributes
    ----------
    objective : str
        A name of ``OBJECTIVES``.
    ports, buffer : int
        N and B, in packets.
    slots : str
        The arrivals, as the papers write them.
    predictions : str
        A digit per packet, 1 = drop; empty where predictions play no role.
    counts : dict of str to int
        What :func:`measure` finds.
    """

    objective: str
    ports: int
    buffer: int
    slots: str
    predictions: str
    counts: dict[str, int]

    @property
    def ratio(self) -> Fraction:
        """The ratio of the objective."""
        return OBJECTIVES[self.objective].ratio(self.counts, self.ports) or Fraction(0)

    @property
    def violates(self) -> bool:
        """Whether the ratio is above what the literature claims."""
        claimed = OBJECTIVES[self.objective].claimed(self.ports)
        return claimed is not None and float(self.ratio) > claimed


def measure(
    names: Iterable[str],
    ports: int,
    buffer: int,
    slot: Sequence[int],
    port: Sequence[int],
    predictions: Sequence[int],
) -> dict[str, int]:
    """Count what the named send or are.

    A policy of the native library: packets it transmits. opt: the most that any policy could. reduced: FollowLQD
    without the packets that are predicted to drop. tn, fn: packets predicted to pass that LQD transmits, drops. All by
    default rules; predictions, one per packet, are for Credence.
    """
    slots, ports_of, drop = np.array(slot, np.int64), np.array(port, np.int32), np.array(predictions, np.uint8)
    counts: dict[str, int] = {}
    for name in names:
        if name == "opt":
            counts[name] = late_qd(ports, buffer, slots, ports_of)["transmitted"]
        elif name == "reduced":
            kept = drop == 0
            counts[name] = slotted("followlqd", ports, buffer, slots[kept], ports_of[kept])["transmitted"]
        elif name in ("tn", "fn"):
            label = slotted("lqd", ports, buffer, slots, ports_of)["lqd_drop"]
            counts[name] = int(np.count_nonzero((drop == 0) & (label == (name == "fn"))))
        else:
            told = drop if name == "credence" else None
            counts[name] = slotted(name, ports, buffer, slots, ports_of, told, labels=False)["transmitted"]
    return counts


def search(
    objective: str, ports: int, buffer: int, *, seed: int = 0, restarts: int = 8, steps: int = 3000
) -> WorstCase:
    """Look for a sequence with a high ratio, then take out of it what does not matter.

    Parameters
    ----------
    objective : str
        A name of ``OBJECTIVES``.
    ports, buffer : int
        N, 2 to 10 (ports are written as one digit), and B >= N.
    seed : int
        The same seed finds the same sequence.
    restarts, steps : int
        So many sequences are grown from nothing, each by so many changes.

    Raises
    ------
    ForetailError
        On an unknown objective or a switch out of range.
    """
    if objective not in OBJECTIVES:
        raise ForetailError(f"no objective {objective!r}: choose one of {', '.join(OBJECTIVES)}")
    if not 2 <= ports <= min(10, buffer):
        raise ForetailError(f"ports must be from 2 to 10 and at most the buffer, {buffer}: {ports}")
    wanted = OBJECTIVES[objective]
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
    wanted = OBJECTIVES[objective]
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


def worst_cases(
    objectives: Iterable[str] = tuple(OBJECTIVES),
    switches: Iterable[tuple[int, int]] = SWITCHES,
    *,
    seed: int = 0,
    restarts: int = 16,
    steps: int = 4000,
    processes: int = 1,
) -> list[WorstCase]:
    """Return for every objective and every number of ports the worst case that a search over the switches finds."""
    jobs = list(product(objectives, switches))
    one = partial(_job, seed=seed, restarts=restarts, steps=steps)
    if processes == 1:
        found = list(map(one, jobs))
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(one, jobs))
    worst: dict[tuple[str, int], WorstCase] = {}
    for case in found:
        key = (case.objective, case.ports)
        if key not in worst or case.ratio > worst[key].ratio:
            worst[key] = case
    return list(worst.values())


def _job(job: tuple[str, tuple[int, int]], **settings: int) -> WorstCase:
    objective, (ports, buffer) = job
    return search(objective, ports, buffer, **settings)


def write_json(path: Path, cases: Iterable[WorstCase]) -> None:
    """Write cases to a file, one a line."""
    lines = [json.dumps(asdict(case)) for case in cases]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def read_json(path: Path) -> list[WorstCase]:
    """Read what :func:`write_json` wrote."""
    return [WorstCase(**case) for case in json.loads(path.read_text(encoding="utf-8"))]


COUNTS = {
    "opt": "OPT",
    "lqd": "LQD",
    "cs": "CS",
    "dt": "DT",
    "harmonic": "Harmonic",
    "followlqd": "FollowLQD",
    "credence": "Credence",
    "reduced": "reduced",
    "tn": "TN",
    "fn": "FN",
}
"""Short names of what is measured."""


def table(cases: Iterable[WorstCase]) -> str:
    """Return a table of cases in Markdown."""
    rows = [
        "| ratio | N | B | slots | predictions | counts | found | claimed | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        objective = OBJECTIVES[case.objective]
        claimed = objective.claimed(case.ports)
        counts = ", ".join(f"{COUNTS[name]} {count}" for name, count in case.counts.items())
        says = "no claim" if claimed is None else "**exceeds the claim**" if case.violates else "within the claim"
        cells = (
            objective.text,
            case.ports,
            case.buffer,
            f"`{case.slots}`",
            f"`{case.predictions}`" if case.predictions else "",
            counts,
            f"{float(case.ratio):.3f}",
            "" if claimed is None else f"{claimed:.4g}",
            says,
        )
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def page(cases: Iterable[WorstCase]) -> str:
    """Return the page docs/worst-cases.md."""
    return f"""# Worst cases that a search found

Short sequences on which a policy, or what is claimed of it, does badly: N at most 4, B at most 8, at most {MAX_SLOTS}
slots. At most N packets arrive in a slot, except where the ratio says "any load" (at most 2 B). Slots are written as
in the papers: `[012][][11]` is three slots with the ports of their arrivals. Predictions have a digit per packet, 1 =
drop; none where they play no role or all packets are predicted to pass. OPT is exact; "reduced" is FollowLQD without
the packets that are predicted to drop, and η = LQD / reduced; TN and FN count packets predicted to pass that LQD
transmits and drops. Rules: the arrival counts in its queue, the lowest port loses ties, victims are tails. All counts
are packets transmitted, the final drain included.

A ratio that was found is a lower bound of the worst one. "Within the claim" is no proof. Claims are those of Credence
(NSDI'24) and the literature it cites; most are about long sequences and large buffers, which a short one in a small
buffer may not reach, and Harmonic's is about shares that are not rounded down to whole packets. Credence's factor N
at any load is exceeded where N does not divide B, because our safeguard rounds B / N down, which is what makes
perfect predictions exact (`tests/sim_bridge/test_theorems.py`).

{table(cases)}

Search again with `python -m foretail.sim_bridge.open_loop.worst_case`; `--json tests/sim_bridge/worst_cases.json`
keeps what it finds, and `--page tests/sim_bridge/worst_cases.json > docs/worst-cases.md` writes this page. The cases
are tests (`tests/sim_bridge/test_worst_cases.py`).
"""


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m foretail.sim_bridge.open_loop.worst_case", description=__doc__)
    parser.add_argument("--objective", choices=OBJECTIVES, action="append", help="default: all; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=16, help="sequences grown per objective and switch")
    parser.add_argument("--steps", type=int, default=4000, help="changes to each of them")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the cases to this file")
    parser.add_argument("--page", type=Path, metavar="JSON", help="print the page of the cases in this file; no search")
    given = parser.parse_args()
    if given.page is not None:
        print(page(read_json(given.page)), end="")
        return 0
    if min(given.seed + 1, given.restarts, given.steps, given.processes) < 1:
        parser.error("--seed must be at least 0, --restarts, --steps and --processes at least 1")
    cases = worst_cases(
        given.objective or OBJECTIVES,
        seed=given.seed,
        restarts=given.restarts,
        steps=given.steps,
        processes=given.processes,
    )
    print(table(cases))
    if given.json is not None:
        write_json(given.json, cases)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
