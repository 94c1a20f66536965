"""The resource report of a plan: what it takes, why it was chosen, and what to shrink when it does not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from foretail.export.folder import in_json
from foretail.export.lowered import Lowered
from foretail.export.p4.planning.cost import Candidate, Plan
from foretail.features.feature import LARGEST_CELL_BYTES
from foretail.models.ensemble.ensemble import FeatureInput

TOTALS = ("rows", "expanded_rows", "tcam_bits", "sram_bits", "tcam_blocks", "sram_blocks")


def report_json(lowered: Lowered, plan: Plan, compiled: Mapping[str, Any] | None) -> str:
    """Return the text of ``report.json``: every figure, also what a compiler says, if one was asked."""
    document = {
        "ir_sha256": lowered.ensemble.sha256,
        "profile": asdict(plan.profile),
        "reason": plan.reason,
        "score_bits": plan.score_bits,
        "chosen": _summary(plan.chosen),
        "compiled": compiled,
        "tables": [asdict(table) for table in plan.chosen.tables],
        "considered": [_summary(candidate) for candidate in plan.considered],
        "shrink": shrink(lowered, plan) if plan.chosen.faults else [],
    }
    return in_json("foretail.p4_report", 1, document)


def shrink(lowered: Lowered, plan: Plan) -> list[str]:
    """Return what to change so that the plan fits, most promising first, one phrase each, and nothing that is done."""
    ensemble, chosen, profile = lowered.ensemble, plan.chosen, plan.profile
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
            + (f" at {feature.params}: collect with a larger cell_bytes" if _can_be_coarser(feature) else "")
        )
    widest = max(chosen.tables, key=lambda table: table.key_bits)
    if widest.key_bits > profile.largest_key_bits:
        advice.append(f"{widest.name} has a key of {widest.key_bits} bits: train trees of fewer leaves")
    if plan.score_bits > profile.largest_integer_bits:
        one_tau = ", or export for one tau (any_tau=false)" if lowered.any_tau else ""
        advice.append(f"the votes are too fine: train leaves of more rows{one_tau}")
    fewer = f"fewer than {len(ensemble.trees)} trees or " if len(ensemble.trees) > 1 else ""
    return [*advice, f"train {fewer}less depth"]


def _can_be_coarser(feature: FeatureInput) -> bool:
    cell_bytes = re.search(r"\bcell_bytes=(\d+)", feature.params)
    return cell_bytes is not None and int(cell_bytes[1]) < LARGEST_CELL_BYTES


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
