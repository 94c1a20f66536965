"""Changes one place of the source at a time and runs the tests that cover it: what no test notices is printed.

``make mutants`` runs this, an hour and a half for 135. As many are drawn in every module. No file changes: the tests
import the mutant instead. cosmic-ray says what can change; docs/design/reliability.md judges what survives.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

MODULES = (
    *(f"{folder}/*.py" for folder in ("features", "features/dataset", "features/demand", "features/rows")),
    "models/ensemble/*.py",
    "export/proof.py",
)
# Tests that notice changes of a module, besides those of its name.
ALSO = {
    "boxes": "ensemble",
    "catalog": "dataset",
    "cells": "votes",
    "effort": "ensemble",
    "ensemble": "votes",
    "frontends": "model_files",
    "matrix": "demand_sequences demand_files demand_scores",
    "nested": "votes",
    "proof": "votes c onnx",
    "reader": "dataset labelled_rows demand_sequences dataset_faults",
    "records": "dataset",
    "rounding": "ensemble votes",
    "schema": "dataset dataset_faults",
    "splits": "labelled_rows",
    "tree": "ensemble votes",
    "writer": "dataset dataset_faults",
}
# Loaded once: each mutant then starts in a fork, without the seconds that these take.
LIBRARIES = (
    "jsonschema",
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
    "sklearn.ensemble",
    "treelite",
)
PYTEST = ["-x", "-q", "-n0", "-pno:cacheprovider", "--hypothesis-profile=quick", "-mnot slow and not ns3"]
LIMIT_S = 60
HOOK = """
from importlib.machinery import SourceFileLoader as Loader
code_of = Loader.get_code
Loader.get_code = lambda self, name: self.source_to_code({0!r}, self.path) if name == {1!r} else code_of(self, name)
"""
Place = list[tuple[str, int]]  # what can change there: operators of cosmic-ray, each with its occurrence in the file


def places(source: str) -> list[Place]:
    """Return every place outside annotations, which nothing runs."""
    notes = [getattr(node, part, None) for node in ast.walk(ast.parse(source)) for part in ("annotation", "returns")]
    silent = [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in notes if isinstance(n, ast.expr)]
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[object, Place] = {}
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():
            continue  # it has to be options what to change
        spans = [span for node in nodes for span in operator().mutation_positions(node)]
        for occurrence, (start, end) in enumerate(spans):
            if not any(first <= start and end <= last for first, last in silent):
                found.setdefault((start, end), []).append((name, occurrence))
    return list(found.values())


def mutants(source: str, found: list[Place], chance: random.Random) -> Iterator[str]:
    """Yield the source with one place changed, in random order."""
    for place in chance.sample(found, len(found)):
        name, occurrence = chance.choice(place)
        with suppress(SyntaxError, AttributeError):  # no program can be tested; cosmic-ray stumbles over `except a.b`
            changed = mutate_code(source, get_operator(name)(), occurrence)
            ast.parse(changed)
            yield changed


def outcome(tests: list[str], limit_s: int, hook: str = "") -> str:
    """Run tests in a fork, in silence if a hook changes a module: survived, killed or timed out."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))  # of the processor: a loaded machine is no fault
        signal.alarm(20 * limit_s)  # for what waits
        if hook:
            exec(hook, {})
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os._exit(pytest.main([*PYTEST, *tests]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "survived" if status == 0 else "killed" if status > 0 else "timed out"


def main() -> None:
    """Draw mutants, test each, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=135, help="how many (default: 135)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--only", default="", help="modules whose path has this in it")
    options = parser.parse_args()
    paths = [path for pattern in MODULES for path in sorted(Path().glob(pattern)) if options.only in str(path)]
    sources = {str(path.with_suffix("")): path.read_text() for path in paths}
    at = {module: found for module, source in sources.items() if (found := places(source))}
    tests = {}
    for module in at:
        name = module.split("/")[-1]
        asked = [
            f"{module.split('/')[0]}/**/test_*{name}.py",
            *(f"**/test_{test}.py" for test in ALSO.get(name, "").split()),
        ]
        tests[module] = [str(test) for pattern in asked for test in sorted(Path("tests").glob(pattern))]
    for library in LIBRARIES:
        importlib.import_module(library)
    if outcome(sorted({test for each in tests.values() for test in each}), 3600) != "survived":
        sys.exit("these tests fail without a mutant: repair them first")
    waiting = {m: mutants(sources[m], at[m], random.Random(f"{options.seed} {m}")) for m in at}
    counts = {module: Counter[str]() for module in at}
    rounds = (
        (module, changed) for _ in range(options.mutants) for module in at for changed in islice(waiting[module], 1)
    )
    for number, (module, changed) in enumerate(islice(rounds, options.mutants), start=1):
        hook = HOOK.format(changed, "foretail." + module.replace("/", "."))
        with TemporaryDirectory() as folder:
            Path(folder, "sitecustomize.py").write_text(hook)  # for processes that the tests start
            os.environ["PYTHONPATH"] = folder
            result = outcome(tests[module], LIMIT_S, hook)
        counts[module][result] += 1
        print(f"{number}. {module}: {result}", flush=True)
        if result == "survived":
            lines = unified_diff(sources[module].splitlines(), changed.splitlines(), n=1, lineterm="")
            print(*islice(lines, 2, None), sep="\n", flush=True)
    for module, count in counts.items():
        print(f"{module}: {len(at[module])} places, {count.total()} drawn, {dict(count)}")


if __name__ == "__main__":
    main()
