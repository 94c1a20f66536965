"""The resource report of a plan: what it takes, why it was chosen, and what to shrink when it does not fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from foretail.export.folder import in_json
from foretail.export.p4.cost import Candidate, Plan
from foretail.models.ensemble.ensemble import Ensemble

TOTALS = ("rows", "expanded_rows", "tcam_bits", "sram_bits", "tcam_blocks", "sram_blocks")


def report_json(ensemble: Ensemble, plan: Plan) -> str:
    """Return the text of ``report.json``: every figure."""
    document = {
        "ir_sha256": ensemble.sha256,
        "profile": asdict(plan.profile),
        "reason": plan.reason,
        "score_bits": plan.score_bits,
        "chosen": _summary(plan.chosen),
        "tables": [asdict(table) for table in plan.chosen.tables],
        "considered": [_summary(candidate) for candidate in plan.considered],
        "shrink": shrink(ensemble, plan) if plan.chosen.faults else [],
    }
    return in_json("foretail.p4_report", 1, document)


def shrink(ensemble: Ensemble, plan: Plan) -> list[str]:
    """Return what to change so that the plan fits, most promising first, one phrase each."""
    chosen, profile = plan.chosen, plan.profile
    advice = []
    if profile.stages is not None and chosen.stages > profile.stages:
        advice.append(f"stages must fall to {profile.stages / chosen.stages:.0%}")
    if chosen.features:
        names = {f"t_{f.name}": f for f in ensemble.features}
        tables = [table for table in chosen.tables if table.name in names]
        dearest = max(tables, key=lambda table: table.tcam_bits + table.sram_bits)
        bits = sum(table.tcam_bits + table.sram_bits for table in chosen.tables)
        feature = names[dearest.name]
        advice.append(
            f"feature {feature.name} takes {(dearest.tcam_bits + dearest.sram_bits) / bits:.0%} of all bits"
            + (f" at {feature.params}: collect with a larger cell_bytes" if "cell_bytes=" in feature.params else "")
        )
    widest = max(chosen.tables, key=lambda table: table.key_bits)
    if widest.key_bits > profile.largest_key_bits:
        advice.append(f"{widest.name} has a key of {widest.key_bits} bits: train trees of fewer leaves")
    if plan.score_bits > profile.largest_integer_bits:
        advice.append("the votes are too fine: train leaves of more rows, or export for one tau (any_tau=False)")
    return [*advice, f"train fewer than {len(ensemble.trees)} trees or less depth"]


def _summary(candidate: Candidate) -> dict[str, Any]:
    return {
        "decision": candidate.decode,
        "feature_tables": candidate.mix,
        **{field: candidate.total(field) for field in TOTALS},
        "tables": len(candidate.tables),
        "largest_key_bits": max(table.key_bits for table in candidate.tables),
        "longest_chain": max(table.step for table in candidate.tables),
        "arithmetic_steps": candidate.arithmetic_steps,
        "stages": candidate.stages,
        "cost": candidate.cost,
        "fits": not candidate.faults,
        "faults": list(candidate.faults),
    }
