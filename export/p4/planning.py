"""The cost of an encoding on a target, the cheapest encoding that fits, and the report of it.

Counting, the same for every encoding: a TCAM row takes its key bits once (twice in a TCAM that matches ranges; without
one, a range takes as many rows as it has prefixes), and its action data in SRAM. An exact row takes key and action data
in SRAM. Default actions take no row. Blocks are taken whole. A stage holds tables of one step of the longest chain of
dependent tables only, and additions between tables take a stage per step. Tau is set beside other tables, but where it
is compared with the sum by a subtraction, which takes a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product as combinations
from typing import Any, Literal

from foretail.core.errors import ForetailError
from foretail.export.folder import in_json
from foretail.export.p4.encoding import (
    DECISIONS,
    Encoding,
    FeatureTable,
    Tables,
    VoteTable,
    groups,
    leaf_rows,
    product,
    score_bits,
)
from foretail.export.p4.profile import Profile
from foretail.export.p4.rows import KINDS, Kind, range_prefixes, rows_of
from foretail.export.proof import MAX_CELLS, Lowered
from foretail.features.catalog import LARGEST_CELL_BYTES
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput

MAX_PRODUCT_BOXES = 1 << 14
MAX_COMBINATIONS = 256

TOTALS = ("rows", "expanded_rows", "tcam_bits", "sram_bits", "tcam_blocks", "sram_blocks")


@dataclass(frozen=True)
class TableCost:
    """One table."""

    name: str
    kind: str  #: of its key
    step: int  #: position in the longest chain of dependent tables, from 1
    rows: int  #: before ranges became prefixes
    expanded_rows: int  #: after it; equal without ranges
    key_bits: int  #: of one row
    data_bits: int  #: of one row
    tcam_bits: int
    sram_bits: int
    tcam_blocks: int
    sram_blocks: int


@dataclass(frozen=True)
class Candidate:
    """An encoding with its feature tables chosen, and what it costs."""

    encoding: Encoding
    features: tuple[FeatureTable, ...]
    tables: tuple[TableCost, ...]  #: those of features, those of votes, ``decide``, and ``verdict`` where it has rows
    cost: float  #: by the weights of the profile
    #: saturation, additions and the comparison between and after the tables, one after the other
    arithmetic_steps: int
    stages: int  #: needed, when nothing else is on the switch
    faults: tuple[str, ...]  #: why it does not fit; empty when it does

    def total(self, field: str) -> int:
        """Sum a field of :class:`TableCost` over all tables."""
        return sum(int(getattr(table, field)) for table in self.tables)

    @property
    def mix(self) -> Literal["range", "ternary", "mixed"]:
        """The kind of all feature tables, or ``mixed``."""
        kinds = {table.kind for table in self.features}
        return next(iter(kinds)) if len(kinds) == 1 else "mixed"

    @property
    def decode(self) -> str:
        """Decision side in words."""
        return f"groups ({len(self.encoding.votes)})" if self.encoding.decision == "groups" else self.encoding.decision


@dataclass(frozen=True)
class Plan:
    """The chosen encoding."""

    chosen: Candidate
    considered: tuple[Candidate, ...]  #: the cheapest of every decision side and kind of feature tables, cheapest first
    reason: str  #: why `chosen`, one sentence
    profile: Profile
    score_bits: int

    @property
    def tables(self) -> Tables:
        """The tables that a text holds."""
        return Tables(self.chosen.encoding, self.chosen.features, self.score_bits)


def plan(
    ensemble: Ensemble,
    profile: Profile,
    encoding: str = "auto",
    decision: str = "auto",
    max_cells: int = MAX_CELLS,
    max_rows: int | None = None,
) -> Plan:
    """Return the cheapest encoding that fits, else the cheapest, with its faults.

    ForetailError on another name, or when the ensemble has no such encoding.

    Parameters
    ----------
    ensemble : with votes
    encoding : {'auto', 'range', 'ternary'}, kind of all feature tables; ``auto`` mixes them
    decision : {'auto', 'leaf_rows', 'product', 'groups'}
    max_cells : above so many cells nothing can prove a product or groups, so there are none
    max_rows : of all tables; None means that rows cost what the profile says, and have no limit
    """
    for what, value, allowed in (("encoding", encoding, KINDS), ("decision", decision, DECISIONS)):
        if value not in ("auto", *allowed):
            raise ForetailError(f"the P4 {what} is {value!r}: choose auto, {', '.join(allowed)}")
    architecture = profile.architecture
    if encoding not in ("auto", *architecture.kinds):
        raise ForetailError(
            f"there is no P4 encoding {encoding!r} for {architecture.name}: "
            f"choose auto, {', '.join(architecture.kinds)}"
        )
    width, names = score_bits(ensemble, architecture), [feature.name for feature in ensemble.features]
    kinds = tuple(kind for kind in architecture.kinds if encoding in ("auto", kind))
    candidates = [
        candidate
        for side in _encodings(ensemble, profile, decision, max_cells)
        for candidate in candidates_of(side, profile, kinds, width, names, max_rows)
    ]
    if not candidates:
        wanted = " and ".join(name for name in (encoding, decision) if name != "auto")
        raise ForetailError(
            f"the model has no P4 encoding with {wanted} of reasonable size: choose auto, fewer trees or a larger unit"
        )
    # The order of `candidates` breaks ties, so that the choice does not depend on chance.
    ordered = sorted(candidates, key=lambda c: (c.cost, c.stages))
    fitting = [c for c in ordered if not c.faults]
    chosen = (fitting or ordered)[0]
    best: dict[tuple[str, str], Candidate] = {}
    for candidate in ordered:
        best.setdefault((candidate.decode, candidate.mix), candidate)
    considered = tuple(best.values())
    return Plan(chosen, considered, _reason(chosen, ordered, considered, profile), profile, width)


def most_trees(
    ensemble: Ensemble,
    profile: Profile,
    encoding: str = "auto",
    decision: str = "auto",
    max_cells: int = MAX_CELLS,
    max_rows: int | None = None,
) -> int:
    """Return how many of the first trees of an ensemble fit that does not, by bisection; parameters of `plan`."""
    fits, fails = 0, len(ensemble.trees)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fewer = replace(ensemble, trees=ensemble.trees[:middle])
        if plan(fewer, profile, encoding, decision, max_cells, max_rows).chosen.faults:
            fails = middle
        else:
            fits = middle
    return fits


def table_cost(
    name: str,
    kind: str,
    step: int,
    rows: int,
    key_bits: int,
    data_bits: int,
    profile: Profile,
    expanded_rows: int | None = None,
    crossbar_bits: int | None = None,
) -> TableCost:
    """Return the cost of one table.

    `expanded_rows` are those of a range table when ranges become prefixes, `crossbar_bits` what a key takes of the way
    to the TCAM, where that is more than its bits.
    """
    expanded = rows if expanded_rows is None else expanded_rows
    tcam_bits = tcam_blocks = 0
    if kind == "none":  # no key: a default action alone
        return TableCost(name, kind, step, 0, 0, 0, data_bits, 0, 0, 0, 0)
    if kind == "exact":
        sram_rows, sram_row_bits = rows, key_bits + data_bits
    else:
        native = kind == "range" and profile.range
        tcam_rows, row_bits = (rows, 2 * key_bits) if native else (expanded, key_bits)
        tcam_bits = tcam_rows * row_bits
        tcam_blocks = _blocks(tcam_rows, crossbar_bits or row_bits, profile.tcam_block_rows, profile.tcam_block_bits)
        sram_rows, sram_row_bits = tcam_rows, data_bits
    sram_blocks = _blocks(sram_rows, sram_row_bits, profile.sram_block_rows, profile.sram_block_bits)
    sram_bits = sram_rows * sram_row_bits
    return TableCost(
        name, kind, step, rows, expanded, key_bits, data_bits, tcam_bits, sram_bits, tcam_blocks, sram_blocks
    )


def _blocks(rows: int, bits: int, block_rows: int, block_bits: int) -> int:
    return -(-bits // block_bits) * -(-rows // block_rows)


def _encodings(ensemble: Ensemble, profile: Profile, decision: str, max_cells: int) -> Iterator[Encoding]:
    architecture = profile.architecture
    rows = leaf_rows(ensemble, profile.word_bits, architecture)
    if decision in ("auto", "leaf_rows"):
        yield rows
    provable = len(ensemble.trees) == 1 or Cells.of(ensemble).count <= max_cells
    if decision in ("product", "groups") and not provable:
        raise ForetailError(
            f"the P4 decision {decision} of this model has too many cells to be proven: choose decision leaf_rows or "
            f"fewer trees"
        )
    if decision in ("auto", "product", "groups") and len(ensemble.trees) > 1 and provable:
        # A product of more boxes than all trees together has longer keys too, so it cannot be the cheapest in bits.
        limit = 4 * sum(len(tree.leaves) for tree in ensemble.trees)
        if profile.whole_blocks:
            limit = max(limit, 4 * profile.tcam_block_rows)
        if decision != "auto":
            limit = MAX_PRODUCT_BOXES
        if decision != "groups" and (merged := product(ensemble, profile.word_bits, limit, architecture)):
            yield merged
        if decision != "product":
            yield from groups(ensemble, profile.word_bits, limit, architecture)
    if decision == "product" and len(ensemble.trees) == 1:
        yield replace(rows, decision="product")
    if decision == "groups" and len(ensemble.trees) <= 2:
        yield replace(rows, decision="groups")


def candidates_of(
    encoding: Encoding,
    profile: Profile,
    kinds: tuple[Kind, ...],
    width: int,
    names: list[str],
    max_rows: int | None = None,
) -> Iterator[Candidate]:
    """Yield an encoding with every choice of kinds of feature tables, among `kinds`, and what it costs."""
    architecture = profile.architecture
    options: list[list[tuple[FeatureTable, TableCost, float]]] = []
    for code in encoding.codes:
        of_feature = []
        for kind in kinds:
            rows = rows_of(code.intervals, kind, code.saturation)
            if encoding.banked:
                rows = rows.with_default((0,) * len(code.words))
            table = FeatureTable(code, kind, rows)
            cost = _feature_cost(table, names[code.feature], profile)
            of_feature.append((table, cost, _weigh(cost, profile)))
        options.append(of_feature)
    votes = [_vote_cost(i, table, encoding, width, profile) for i, table in enumerate(encoding.votes) if table.key]
    step = max((table.step for table in votes), default=int(bool(encoding.codes)))
    early = encoding.early_tau
    subtracts = not architecture.expressions and not early
    ends = [table_cost("decide", "none", 1 if early else max(step + subtracts, 1), 0, 0, width, profile)]
    if early:
        ends.append(table_cost("verdict", "ternary", step + 1, 2, width, 1, profile))
    arithmetic = _arithmetic_steps(encoding)
    for choice in _choices(options):
        tables = (*(cost for _, cost, _ in choice), *votes, *ends)
        stages = _stages(tables, profile) + arithmetic
        weight = sum(_weigh(table, profile) for table in tables) + profile.stage_cost * stages
        features = tuple(table for table, _, _ in choice)
        faults = _faults(tables, stages, encoding, width, profile, max_rows)
        yield Candidate(encoding, features, tables, weight, arithmetic, stages, tuple(faults))


def _choices(
    options: list[list[tuple[FeatureTable, TableCost, float]]],
) -> Iterator[tuple[tuple[FeatureTable, TableCost, float], ...]]:
    """Yield every combination of feature tables, or where these are too many the cheapest by each measure."""
    count = 1
    for of_feature in options:
        count *= len(of_feature)
    if count == 0:
        return
    if count <= MAX_COMBINATIONS:
        yield from combinations(*options)
        return
    yield tuple(min(of_feature, key=lambda o: o[2]) for of_feature in options)  # costs add up: this is the cheapest
    yield tuple(min(of_feature, key=lambda o: (o[1].tcam_blocks, o[2])) for of_feature in options)
    yield tuple(min(of_feature, key=lambda o: (o[1].sram_blocks, o[2])) for of_feature in options)
    for kind in KINDS:
        uniform = [[o for o in of_feature if o[0].kind == kind] for of_feature in options]
        if all(uniform):
            yield tuple(of_feature[0] for of_feature in uniform)


def _feature_cost(table: FeatureTable, name: str, profile: Profile) -> TableCost:
    bits = table.code.intervals.bits
    expanded = len(table.rows.rows)
    if table.kind == "range":
        expanded = sum(len(range_prefixes(row.first, row.second, bits)) for row in table.rows.rows)
    data = sum(table.code.words)
    return table_cost(f"t_{name}", table.kind, 1, len(table.rows.rows), bits, data, profile, expanded)


def _vote_cost(index: int, table: VoteTable, encoding: Encoding, width: int, profile: Profile) -> TableCost:
    name = encoding.table_name(index)
    data_bits = table.vote_bits if profile.architecture.expressions else width
    step = 2 + encoding.vote_step(index)
    crossbar_bits = None if profile.architecture.expressions else 8 * table.key_bytes
    return table_cost(
        name, "ternary", step, len(table.rows), table.key_bits, data_bits, profile, crossbar_bits=crossbar_bits
    )


def _weigh(table: TableCost, profile: Profile) -> float:
    tcam_bits, sram_bits = table.tcam_bits, table.sram_bits
    if profile.whole_blocks:
        tcam_bits = table.tcam_blocks * profile.tcam_block_rows * profile.tcam_block_bits
        sram_bits = table.sram_blocks * profile.sram_block_rows * profile.sram_block_bits
    return profile.row_cost * table.rows + profile.tcam_bit_cost * tcam_bits + profile.sram_bit_cost * sram_bits


def _arithmetic_steps(encoding: Encoding) -> int:
    additions = (encoding.operands - 1).bit_length()  # constants are added before the switch runs
    saturation = encoding.architecture.saturates and bool(encoding.codes)
    return saturation + additions + (not encoding.early_tau)


def _stages(tables: tuple[TableCost, ...], profile: Profile) -> int:
    total = 0
    for step in {table.step for table in tables}:
        beside = [table for table in tables if table.step == step]
        needs = [1]
        for used, offered in (
            (len(beside), profile.tables_per_stage),
            (sum(table.tcam_blocks > 0 for table in beside), profile.tcam_tables_per_stage),
            (sum(table.tcam_blocks for table in beside), profile.tcam_blocks),
            (sum(table.sram_blocks for table in beside), profile.sram_blocks),
        ):
            if offered is not None:
                needs.append(-(-used // offered))
        total += max(needs)
    return total


def _faults(
    tables: tuple[TableCost, ...],
    stages: int,
    encoding: Encoding,
    width: int,
    profile: Profile,
    max_rows: int | None,
) -> Iterator[str]:
    rows = sum(table.rows for table in tables)
    if max_rows is not None and rows > max_rows:
        yield f"it has {rows} rows of {max_rows}"
    if profile.stages is not None and stages > profile.stages:
        yield f"it needs {stages} stages of {profile.stages}"
    for table in tables:
        if table.key_bits > profile.largest_key_bits:
            yield f"the key of {table.name} has {table.key_bits} bits of {profile.largest_key_bits}"
    words = sum(len(code.words) for code in encoding.codes)
    if profile.code_words is not None and words > profile.code_words:
        yield f"the features have {words} code words of {profile.code_words}"
    if width > profile.largest_integer_bits:
        yield f"the score has {width} bits of {profile.largest_integer_bits}"


def _reason(chosen: Candidate, ordered: list[Candidate], considered: tuple[Candidate, ...], profile: Profile) -> str:
    title = f"{chosen.decode} with {chosen.mix} feature tables"
    if chosen.faults:
        return f"nothing fits {profile.name}; {title} is the cheapest: {'; '.join(chosen.faults)}"
    cheaper = ordered[0]
    if cheaper is not chosen:
        return f"{title} is the cheapest that fits {profile.name}; {cheaper.decode} does not: {cheaper.faults[0]}"
    others = [c for c in considered if c is not chosen]
    if not others:
        return f"{title} is the only one"
    rival = others[0]
    return (
        f"{title} costs {chosen.cost:,.0f} by the weights of {profile.name}, "
        f"the next, {rival.decode} with {rival.mix}, {rival.cost:,.0f}"
    )


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
