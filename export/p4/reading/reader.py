"""Emitted P4 read back from nothing but its text and its entries, and their static checks."""

from __future__ import annotations

from dataclasses import replace

from foretail.export.p4.reading.entries import read_bfrt, read_commands, read_updates
from foretail.export.p4.reading.interpreter import action_data, evaluate, integers
from foretail.export.p4.reading.parser import Parser
from foretail.export.p4.text.syntax import (
    Apply,
    Assign,
    Cast,
    Choose,
    Expression,
    Number,
    Operation,
    Program,
    Slice,
    Table,
    names_in,
    refuse,
)


def read_p4(text: str, commands: str | None = None, updates: str | None = None, bfrt: str | None = None) -> Program:
    """Read the control back from its text, and its entries from the control plane's files when they are not in it.

    ProofError on anything outside the emitted subset, a variable that is read before it is set, or a row that cannot
    match.

    Parameters
    ----------
    text : ``<name>.p4``
    commands : ``<name>.commands.txt``, lines ``table_add`` for simple_switch_CLI
    updates : ``<name>.entries.txtpb``, a P4Runtime WriteRequest; it has to hold the same entries
    bfrt : ``<name>.bfrt.json``, entries for Tofino's runtime, instead of `commands`
    """
    program = Parser(text, with_entries=commands is None and bfrt is None).program()
    if commands is not None or bfrt is not None:
        entries = read_bfrt(bfrt, program) if bfrt is not None else read_commands(commands or "", program)
        if updates is not None and read_updates(updates, program) != entries:
            refuse("the P4Runtime entries are not the others")
        tables = {name: replace(t, entries=tuple(entries.get(name, ()))) for name, t in program.tables.items()}
        program = replace(program, tables=tables)
    _check(program)
    return program


def _check(program: Program) -> None:
    """Refuse values that nothing set or that are set twice, a decision that is not by tau, and rows out of place."""
    known = set(program.inputs)

    def sets(assign: Assign, parameters: set[str]) -> None:
        unset = names_in(assign.value) - known - parameters
        if unset:
            refuse(f"{min(unset)} is read before it is set")
        if assign.name in known:
            refuse(f"{assign.name} is set twice")
        known.add(assign.name)

    applied: set[str] = set()
    for statement in program.statements:
        if isinstance(statement, Assign):
            sets(statement, set())
        elif isinstance(statement, Choose):
            if not {statement.left, *names_in(statement.right), *names_in(statement.no.value)} <= known:
                refuse(f"the choice by {statement.left} reads what is not set")
            sets(statement.yes, set())
        else:
            table = program.tables[statement.table]
            if statement.table in applied or (table.key is not None and table.key not in known):
                refuse(f"table {statement.table} is applied twice or before its key is set")
            applied.add(statement.table)
            action = program.actions[table.action]
            for assign in action.body:
                sets(assign, {name for name, _ in action.parameters})
    if applied != set(program.tables) or not {"score", "drop"} <= known:
        refuse("a table is not applied or an output is not set")
    score, decision = program.types["score"], program.statements[-1]
    decide = program.tables.get("decide", Table("", "", "", (), ()))
    compared = Choose("score", Slice("tau"), Assign("drop", Number(1, 1)), Assign("drop", Number(1, 0)))
    exceeds = replace(compared, left="excess", right=Number(1, 0))
    subtracted = Assign("drop", Slice("margin", score.width - 1, score.width - 1))
    result = "margin" if decision == subtracted else "tau"
    if decision not in (compared, exceeds, subtracted) or program.types.get(result) != score or decide.key is not None:
        refuse("the decision is not score > tau")
    action = program.actions[decide.action]
    if [width for _, width in action.parameters] != [score.width]:
        refuse("tau is not the parameter of table decide")
    tau = Cast(score, Slice(action.parameters[0][0]))
    # tau less the score is negative, also when it saturates, iff score > tau
    value = Operation("|-|", (tau, Slice("score"))) if decision == subtracted else tau
    if action.body != (Assign(result, value),):
        refuse("tau is not the parameter of table decide")
    for name, table in program.tables.items():
        if table.key is not None:
            _check_rows(name, table, program)
    if decision == exceeds:
        _check_excess(program)


def _check_excess(program: Program) -> None:
    """Refuse an excess that may be positive where the score is not above tau, or the reverse, for some tau.

    The excess is a vote less tau, to which the other votes are added, and each operation saturates. All votes together
    are less than either end is away from 0, so an excess that was cut off at an end keeps its sign, and never meets the
    other end.
    """
    sums = {one.name: one.value for one in program.statements if isinstance(one, Assign)}
    of_table = {
        assign.name: (table, assign.value)
        for table in program.tables.values()
        for assign in program.actions[table.action].body
    }
    by_tau = {"tau"}  # what depends on it
    for statement in program.statements:
        if isinstance(statement, Apply):
            table = program.tables[statement.table]
            if table.key in by_tau:
                refuse(f"tau decides what table {statement.table} matches")
            by_tau |= {one.name for one in program.actions[table.action].body if names_in(one.value) & by_tau}
        elif names_in(statement) & by_tau:
            by_tau.add(statement.name if isinstance(statement, Assign) else statement.yes.name)

    def terms(value: Expression, sign: str) -> list[str]:
        """Return the votes of a sum; with ``|+|``, of one that begins with a vote less tau."""
        name = value.name if isinstance(value, Slice) and value.high is None else ""
        table, set_to = of_table.get(name, (None, sums.get(name)))
        if isinstance(set_to, Operation) and set_to.sign == sign and table is None:
            return terms(set_to.operands[0], sign) + [t for one in set_to.operands[1:] for t in terms(one, "+")]
        if sign == "+" and set_to is not None:
            return [name]
        less = [v for v, (of, vote) in of_table.items() if of is table and set_to == _less_tau(vote)]
        return less[:1] or refuse("the decision is not score > tau")

    added = terms(Slice("score"), "+")
    if sorted(added) != sorted(terms(Slice("excess"), "|+|")):
        refuse("the decision is not score > tau")
    low = high = 0
    for name in added:
        setter, value = of_table.get(name, (None, sums.get(name)))
        data = {} if setter is None else action_data(program, setter)
        if value is None or not names_in(value) <= set(data):
            refuse(f"{name} is not made of action data alone")
        reached = integers(evaluate(value, data, 1 if setter is None else len(setter.entries) + 1)).tolist()
        low, high = low + min(0, *reached), high + max(0, *reached)
    half = 1 << (program.types["score"].width - 1)
    if not 2 - half <= low <= high < half:
        refuse("a sum of votes and tau do not fit the score")


def _less_tau(vote: Expression) -> Expression:
    return Operation("|-|", (vote, Slice("tau")))


def _check_rows(name: str, table: Table, program: Program) -> None:
    assert table.key is not None
    full = (1 << program.types[table.key].width) - 1
    widths = [width for _, width in program.actions[table.action].parameters]
    if not 1 <= len(table.entries) <= (table.size or len(table.entries)):
        refuse(f"table {name} has no rows or not enough room for them")
    for entry in table.entries:
        if len(entry.data) != len(widths) or any(v >> w for v, w in zip(entry.data, widths, strict=True)):
            refuse(f"action data of table {name}")
        if entry.first > full or entry.second > full:
            refuse(f"a key of table {name} is too wide")
        if table.kind == "range" and entry.first > entry.second:
            refuse(f"an empty range of table {name}")
        if table.kind != "range" and entry.first & ~entry.second:
            refuse(f"a row of table {name} has value bits outside its mask")
        if table.kind == "exact" and entry.second != full:
            refuse(f"a row of the exact table {name} has a mask")
        if table.kind == "lpm" and (full ^ entry.second) & ((full ^ entry.second) + 1):
            refuse(f"a row of the lpm table {name} is not a prefix")
    if table.kind in ("lpm", "exact") and len({(e.first, e.second) for e in table.entries}) < len(table.entries):
        refuse(f"a row of table {name} occurs twice")
