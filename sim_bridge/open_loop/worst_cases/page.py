"""Worst cases as a file and as the page docs/results/worst-cases.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from foretail.sim_bridge.open_loop.worst_cases.objectives import TITLES, WorstCase, objective_of
from foretail.sim_bridge.open_loop.worst_cases.search import MAX_SLOTS
from foretail.sim_bridge.policies import policy_name

PROOFS = """\
Guarded Credence ([its guards](../design/design.md#policies-as-fixed-here)) stands beside Credence: with its defaults in
slots (three answers in a row, no limit to drops), with two answers, and with one answer but one predicted drop in 25
slots, per queue. "Told right": its predictions are what LQD does. Credence told right sends what LQD sends.

**N, whatever the predictions say**, with at most N arrivals a slot and B >= N. Take any policy that accepts a packet
into an empty buffer and pushes nothing out but to let another in. In every slot in which a packet arrives it has one
to send: it sends one at least. No policy sends more than all arrivals, N in each of those slots. So it sends at least
OPT / N. That is Lemma 2 of Credence, and it holds for Credence, for Guarded Credence with any guards, for LQD,
Complete Sharing, DT, Harmonic and FollowLQD alike: it is no merit of a safeguard or a guard.

**At any load the safeguard proves max(N, B / b)**, with b = B / N rounded down. Credence and Guarded Credence accept
while the longest queue, the arrival counted, is at most b. So when they drop, a queue has b packets. Take a run of
slots in which the policy has packets, up to the next slot in which it has none; packets arrive in such runs only. If
nothing is dropped in it, OPT accepts no more than the policy. Else take the last drop in it, with s slots of the run
before its slot, and a packets that arrive after it. The policy sent at least s packets before, holds b or more, and
accepts the a: it sends at least s + b + a packets of this run. Of OPT's packets of this run at most N s were sent
before, at most B are held at that drop, and at most a come later: N s + B + a. No part of the second sum is more than
max(N, B / b) times its part of the first. Where N divides B this is N.

Both bounds are reached. The cases below reach the second for Credence. For the first take B = N and, in each of T
slots, one packet for each port, all predicted to drop: OPT sends N a slot; Credence keeps one of them a slot, and
Guarded Credence does the same once each queue has had its answers. With T = 1,000, N = 4 and three answers OPT sends
4,000 packets, Credence 1,000 and Guarded Credence 1,006. So in the limit guards without a budget gain nothing in the
worst case, however many answers they need. A budget does: with one drop in 25 slots it sends 3,880 there. (Within one
slot it gains nothing either; short cases show what an additive constant allows.)

**Only searched**, with no upper bound but N:

- Guarded Credence with a budget that is less than a link sends. A search finds the ratios below. Predictions that
  never say drop make any of these FollowLQD, which can be as bad as (N + 1) / 2 in long sequences.
- Told right: what guards give up. Credence loses nothing to LQD then (a fact that is tested, not proven here).
- OPT / (policy · η). For Credence Theorem 1 claims 1.707 and is [refuted](findings.md#credence-and-its-rivals). Guards
  do not restore it, as the cases show. No bound in η, or in another error of predictions, is known for either.

On the sequences of proofs and on workloads, N = 16, B = 512, 20,000 slots, one seed, OPT over a policy whose
predictions are LQD's with this share inverted. The first command prints all but the last column, which has
`parameters.drop_budget_packets=5`, in 25 slots per queue:

```
foretail run competitive_ratio size=small 'flip_probabilities=[0,0.1,1]'
```

| sequence | FollowLQD | Credence: 0, 0.1, 1 | Guarded: 0, 0.1, 1 | with a budget: 0, 0.1, 1 |
|---|---:|---:|---:|---:|
| bursts | 1.000 | 1.000, 1.084, 2.958 | 1.000, 1.000, 2.814 | 1.000, 1.000, 1.009 |
| on-off | 1.001 | 1.000, 1.103, 1.562 | 1.000, 1.001, 1.563 | 1.001, 1.002, 1.231 |
| incast | 1.011 | 1.001, 1.081, 1.274 | 1.001, 1.006, 1.280 | 1.010, 1.011, 1.393 |
| worst for LQD | 1.281 | 1.317, 1.412, 4.101 | 1.314, 1.245, 3.537 | 1.281, 1.205, 1.341 |
| worst for DT | 1.000 | 1.000, 1.106, 8.273 | 1.000, 1.001, 8.273 | 1.000, 1.001, 1.019 |
| worst for FollowLQD | 8.300 | 1.000, 1.165, 8.300 | 1.062, 2.305, 8.288 | 6.947, 6.980, 8.296 |
| worst for Complete Sharing | 1.000 | 1.000, 1.105, 15.974 | 1.000, 1.001, 15.950 | 1.000, 1.001, 1.233 |
| false negatives | 1.000 | 1.000, 1.066, 2.021 | 1.000, 1.001, 2.020 | 1.000, 1.001, 1.124 |
| largest | 8.300 | 1.317, 1.412, 15.974 | 1.314, 2.305, 15.950 | 6.947, 6.980, 8.296 |

Three answers help against single wrong answers, and not where all are wrong. They cost most where FollowLQD is worst:
right drops that come one at a time are not believed. A budget caps what wrong answers cost near FollowLQD's worst, and
gives up there what right ones win."""


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
        "| ratio | N | B | slots | predictions | counts | found | claimed | | proven |",
        "|---|---|---|---|---|---|---|---|---|---|",
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
            "" if case.proven is None else str(case.proven),
        )
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def page(cases: Iterable[WorstCase]) -> str:
    """Return the page docs/results/worst-cases.md."""
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
B / N down, which is what makes perfect predictions exact (`tests/sim_bridge/test_theorems.py`). The last column is an
upper bound for that N and B that the next section proves; where it is empty, all that is known was searched.

## What is proven, and what is only searched

{PROOFS}

## The cases

{table(cases)}

Search again with `python -m foretail.sim_bridge.open_loop.worst_cases`; `--json tests/sim_bridge/worst_cases.json`
keeps what it finds, and `--page tests/sim_bridge/worst_cases.json > docs/results/worst-cases.md` writes this page. The
cases are tests (`tests/sim_bridge/test_worst_cases.py`).
"""
