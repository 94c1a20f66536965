"""An export target of one's own: the score as one SQL query, proven equal to the model in SQLite."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from foretail.export.proof import Lowered, ProofError, ReadBack
from foretail.export.target import Files, Loaded, Rendered
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import Tree

CUT = re.compile(r"CASE WHEN (\w+) <= (\d+) THEN ")
QUERY = re.compile(r"SELECT (?P<score>[^;]*) AS score FROM arrivals ORDER BY arrival;\n")


@dataclass(frozen=True)
class Sql:
    """``<name>.sql``: reads a table ``arrivals`` with a column for each feature, and one with the order."""

    name: ClassVar[str] = "sql"

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        """Write each tree as nested CASE; the score is the sum of all."""
        model = lowered.ensemble
        names = [feature.name for feature in model.features]
        score = "\n  + ".join(_case(tree, 0, names) for tree in model.trees)
        return Rendered({f"{prefix}.sql": f"SELECT {score} AS score FROM arrivals ORDER BY arrival;\n".encode()})

    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        """Read the constants that each column meets, refuse all that is not CASE, and let SQLite run the text."""
        (content,) = files.values()
        text = content.decode("ascii")
        query = QUERY.fullmatch(text)
        rest = "" if query is None else re.sub(r"ELSE | END|-?\b\d+\b|\n  \+ ", "", CUT.sub("", query["score"]))
        if query is None or rest.strip():
            raise ProofError(f"the SQL holds {rest.strip()[:40]!r}, which is not written here: export it again")
        names = [feature.name for feature in ensemble.features]
        boundaries: dict[int, set[int]] = {}
        for name, cut in CUT.findall(text):
            if name not in names:
                raise ProofError(f"the SQL reads {name}, which is no feature of the model: export it again")
            boundaries.setdefault(names.index(name), set()).add(int(cut))

        def score(x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            with sqlite3.connect(":memory:") as database:
                database.execute(f"CREATE TABLE arrivals (arrival INTEGER PRIMARY KEY, {', '.join(names)})")
                places = ", ".join("?" * (1 + len(names)))
                rows = ((arrival, *row) for arrival, row in enumerate(x.tolist()))
                database.executemany(f"INSERT INTO arrivals VALUES ({places})", rows)
                try:
                    found = database.execute(text).fetchall()
                except sqlite3.Error as error:
                    raise ProofError(f"SQLite refuses the SQL ({error}): export it again") from None
            database.close()
            return np.array(found, np.int64)[:, 0]

        return Loaded({"query": ReadBack(boundaries)}, {"sqlite": score}, f"SQLite {sqlite3.sqlite_version}")


def _case(tree: Tree, node: int, names: list[str]) -> str:
    if tree.feature[node] < 0:
        return str(tree.require_votes()[node])
    left, right = (_case(tree, int(child[node]), names) for child in (tree.left, tree.right))
    return f"CASE WHEN {names[tree.feature[node]]} <= {tree.cut[node]} THEN {left} ELSE {right} END"
