"""``python -m tests.fingerprints accept --reason "..."``: take what is computed now as right, and say why.

``check`` says what changed and writes nothing. Both take the kinds to look at, such as ``configs``; all by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fingerprints.book import FOLDER, Fingerprint, accept, changes, read
from tests.fingerprints.groups import GROUPS, KINDS
from tests.fingerprints.place import Place


def main() -> int:
    """Return 0 when nothing changed or the changes were accepted, 1 when `check` found some, 2 on a bad call."""
    parser = argparse.ArgumentParser(prog="python -m tests.fingerprints", description=__doc__)
    parser.add_argument("action", choices=("accept", "check"))
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--reason", default="", help="why the results change; stands in every row that changed")
    given = parser.parse_intermixed_args()
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}")
    if given.action == "accept" and not given.reason.strip():
        parser.error("say why the results change: make fingerprints REASON='...'")
    found: dict[str, list[Fingerprint]] = {kind: [] for kind in given.kinds or KINDS}
    with tempfile.TemporaryDirectory(prefix="fingerprints-") as folder:
        place = Place(Path(folder))
        for group in GROUPS:
            if group.kind in found:
                found[group.kind] += group.fingerprints(place)
    if given.action == "accept":
        lines = accept(found, given.reason)
    else:
        lines = [
            f"{kind}.csv: {line}"
            for kind, rows in found.items()
            for line in changes(read(FOLDER / f"{kind}.csv"), rows)
        ]
    print("\n".join(lines) or "no result changed")
    return int(given.action == "check" and bool(lines))


if __name__ == "__main__":
    sys.exit(main())
