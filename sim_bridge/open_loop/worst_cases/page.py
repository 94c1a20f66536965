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
## What is proven, and what is only searched

[Guarded Credence](../design/design.md#policies-as-fixed-here) stands beside Credence in three forms: with its defaults
in slots (three answers in a row, no limit to drops), with two answers, and with one answer but one predicted drop in 25
slots, per queue. *Told right* means that its predictions are what LQD does. Credence told right sends what LQD sends.

### The factor N, for all predictions

**Claim.** Take any policy that accepts a packet into an empty buffer, and pushes nothing out but to let another packet
in. With at most N arrivals a slot and B >= N it sends at least OPT / N.

**Proof.** In every slot in which a packet arrives the policy has one to send, so it sends one at least. No policy sends
more than all arrivals, N in each of those slots.

This is Lemma 2 of Credence. It holds for Credence, for Guarded Credence with any guards, for LQD, Complete Sharing, DT,
Harmonic and FollowLQD alike. So it is no merit of a safeguard or a guard.

### The factor of the safeguard, at any load

**Claim.** At any load Credence and Guarded Credence send at least OPT / max(N, B / b), with b = B / N rounded down.
Where N divides B this factor is N.

**Proof.** Both accept while the longest queue, the arrival counted, is at most b. So when they drop, a queue has b
packets. Take a run of slots in which the policy has packets, up to the next slot in which it has none. Packets arrive
in such runs only.

- If nothing is dropped in the run, OPT accepts no more than the policy.
- Otherwise take the last drop in it, with s slots of the run before its slot, and a packets that arrive after it. The
  policy sent at least s packets before, holds b or more, and accepts the a. So it sends at least s + b + a packets of
  this run. Of OPT's packets of this run at most N s were sent before, at most B are held at that drop, and at most a
  come later: N s + B + a. No part of the second sum is more than max(N, B / b) times its part of the first.

**Both bounds are reached.** The cases above reach the second for Credence. For the first take B = N and, in each of T
slots, one packet for each port, all predicted to drop. OPT sends N a slot. Credence keeps one of them a slot, and
Guarded Credence does the same once each queue has had its answers:

| T = 1,000, N = 4, policy | packets sent |
|---|---:|
| OPT | 4,000 |
| Credence | 1,000 |
| Guarded Credence, three answers | 1,006 |
| Guarded Credence, one drop in 25 slots | 3,880 |

So in the limit guards without a budget gain nothing in the worst case, however many answers they need. A budget does.
Within one slot it gains nothing either, but short cases show what an additive constant allows.

### Only searched

For these no upper bound but N is known:

- **Guarded Credence with a budget** that is less than a link sends. A search finds the ratios above. Predictions that
  never say drop make any of these FollowLQD, which can be as bad as (N + 1) / 2 in long sequences.
- **Told right**, which shows what guards give up. Credence loses nothing to LQD then (a fact that is tested, not proven
  here).
- **OPT / (policy · η).** For Credence Theorem 1 claims 1.707 and is [refuted](findings.md#credence-and-its-rivals).
  Guards do not restore it, as the cases show. No bound in η is known for either. A bound in the number of wrong
  predictions is [proven](prediction-errors.md) for Credence, and there is none for Guarded Credence.

## Wrong predictions on longer sequences

The table has OPT over a policy, on the sequences of proofs and on workloads, with N = 16, B = 512, 20,000 slots and one
seed. The predictions of the policy are LQD's with a share of 0, 0.1 or 1 inverted, and a cell has the three in this
order. This command prints all but the last column:

```
foretail run competitive_ratio size=small 'flip_probabilities=[0,0.1,1]'
```

The last column has `parameters.drop_budget_packets=5`, in 25 slots per queue:

| OPT over the policy | FollowLQD | Credence: 0, 0.1, 1 | Guarded: 0, 0.1, 1 | Guarded, budget: 0, 0.1, 1 |
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

Three answers help against single wrong answers, and not where all are wrong. They cost most where FollowLQD is worst,
because right drops that come one at a time are not believed. A budget caps what wrong answers cost near FollowLQD's
worst, and gives up there what right ones win."""


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

How badly can a buffer policy do, and does each claim of its paper hold? A search looked for short sequences on which a
policy, or what is claimed of it, does badly. It found sequences that exceed the claims of Lemma 1, Theorem 1 and
Theorem 2 of Credence, and the claim of Harmonic. Credence's factor N holds with at most N arrivals a slot, and two
short proofs below show why.

```
python -m foretail.sim_bridge.open_loop.worst_cases
```

The command searches again. `--json tests/sim_bridge/open_loop/worst_cases.json` keeps what it finds, and `--page
tests/sim_bridge/open_loop/worst_cases.json > docs/results/worst-cases.md` writes this page. The cases are tests
(`tests/sim_bridge/open_loop/test_worst_cases.py`).

## The cases

The sequences have at most {MAX_SLOTS} slots, with N at most 4 ports and B at most 8 packets of buffer.

At most N packets arrive in a slot, except where the ratio says "any load" (at most 2 B). A ratio that was found is a
lower bound of the worst one, so "within the claim" is no proof.

| column | meaning |
|---|---|
| ratio | what the search makes large; OPT is the exact optimum, and η = LQD / reduced |
| slots | arrivals as in the papers: `[012][][11]` is three slots with the ports of their arrivals |
| predictions | a digit per packet, 1 = drop; none where they play no role, or all packets are predicted to pass |
| counts | packets transmitted, the final drain included |
| found, claimed | the ratio of this sequence, and the claim of Credence (NSDI'24) or of the literature that it cites |
| proven | an upper bound for that N and B; where it is empty, all that is known was searched |

[The next section](#what-is-proven-and-what-is-only-searched) proves the upper bounds. *Reduced* is FollowLQD without
the packets that are predicted to drop, with the thresholds of the packets left. TN and FN count packets predicted to
pass that LQD transmits and drops.

{table(cases)}

**Rules.** The arrival counts in its queue, the lowest port loses ties, and victims are tails. Cases against Lemma 1 and
Theorem 1 that hold by both readings of η and under every rule are in
[findings.md](findings.md#credence-and-its-rivals).

**Limits.**

- Most claims are about long sequences and large buffers, which a short sequence in a small buffer may not reach.
  Harmonic's is about shares that are not rounded down to whole packets.
- Credence's factor N is claimed for at most N arrivals a slot. At any load our safeguard exceeds it where N does not
  divide B. It rounds B / N down, which is what makes perfect predictions exact
  (`tests/sim_bridge/buffer/test_theorems.py`).

{PROOFS}
"""
