"""Worst cases as a file and as the page docs/worst-cases.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from foretail.sim_bridge.open_loop.worst_cases.objectives import TITLES, WorstCase, objective_of
from foretail.sim_bridge.open_loop.worst_cases.search import MAX_SLOTS
from foretail.sim_bridge.policies import policy_name


def write_json(path: Path, cases: Iterable[WorstCase]) -> None:
    """Write cases to a file, one a line."""
    lines = [json.dumps(asdict(case)) for case in cases]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def read_json(path: Path) -> list[WorstCase]:
    """Read what :func:`write_json` wrote."""
    return [WorstCase(**case) for case in json.loads(path.read_text(encoding="utf-8"))]


def table(cases: Iterable[WorstCase]) -> str:
    """Return a table of cases in Markdown."""
    rows = [
        "| ratio | N | B | slots | predictions | counts | found | claimed | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        objective = objective_of(case.objective)
        claimed = objective.claimed(case.ports)
        counts = ", ".join(f"{TITLES.get(name, policy_name(name))} {count}" for name, count in case.counts.items())
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
the packets that are predicted to drop, its thresholds those of the packets left, and η = LQD / reduced; TN and FN
count packets predicted to pass that LQD transmits and drops. Rules: the arrival counts in its queue, the lowest port
loses ties, victims are tails. All counts are packets transmitted, the final drain included. Cases against Lemma 1
and Theorem 1 that hold by both readings of η and under every rule are in
[findings.md](findings.md#credence-and-its-rivals).

A ratio that was found is a lower bound of the worst one. "Within the claim" is no proof. Claims are those of Credence
(NSDI'24) and the literature it cites; most are about long sequences and large buffers, which a short one in a small
buffer may not reach, and Harmonic's is about shares that are not rounded down to whole packets. Credence's factor N
is claimed for at most N arrivals a slot. At any load our safeguard exceeds it where N does not divide B: it rounds
B / N down, which is what makes perfect predictions exact (`tests/sim_bridge/test_theorems.py`).

{table(cases)}

Search again with `python -m foretail.sim_bridge.open_loop.worst_cases`; `--json tests/sim_bridge/worst_cases.json`
keeps what it finds, and `--page tests/sim_bridge/worst_cases.json > docs/worst-cases.md` writes this page. The cases
are tests (`tests/sim_bridge/test_worst_cases.py`).
"""
