"""The contract of export targets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from foretail.core.errors import ForetailError
from foretail.core.plugins import PluginError
from foretail.export.passes import lower
from foretail.export.proof import Lowered
from foretail.export.target import Files, Target, prove_files
from foretail.models.drop.contract import synthetic_arrivals
from foretail.models.drop.forest import RandomForest
from foretail.models.drop.parameters_contract import holds, made_of
from foretail.models.ensemble.ensemble import FeatureInput

PREFIX = "contract"
MAX_CELLS = 1_000_000

_NUMBER = re.compile(rb"(?<![\w.])\d{1,15}\b")
_FEATURES = tuple(FeatureInput(name, "", 24) for name in ("queue", "queue_average", "occupancy", "occupancy_average"))


def check_target(target: Target | Callable[[], Target], changes: int = 8) -> None:
    """Run the contract of :class:`foretail.export.target.Target` on a target, or on what makes one.

    AssertionError with the rule that does not hold.

    Parameters
    ----------
    target : Target, or callable without arguments
    changes : int
        So many numbers in each file of text are changed, one at a time: each change is refused, or proven to mean
        nothing. Every change is a `load`, which may compile.
    """
    made: Target = made_of(target, Target, "a target")  # type: ignore[type-abstract]
    assert isinstance(made.name, str), "a target must have a name"
    assert re.fullmatch(r"[a-z][a-z0-9_]*", made.name), "the name must be lower-case letters, digits and _"
    model, other = _model(trees=2, depth=3, seed=3), _model(trees=3, depth=2, seed=4)
    files, others = _rendered(made, model), _rendered(made, other)
    assert files == _rendered(made, model), "equal models must give equal files"
    assert all(name.startswith(PREFIX) for name in files), f"file names must begin with the prefix {PREFIX}"

    with holds("what was rendered must be read back, run, and proven equal to the model"):
        certificate, proven = prove_files(model, made, files, MAX_CELLS)
        prove_files(other, made, others, MAX_CELLS)
    assert certificate.target == made.name, "the certificate must have the target's name"
    assert set(files) <= set(proven), "every rendered file must be in the certificate"

    clause = "load must read the files and nothing else: those of another model must not pass"
    with holds(clause):
        assert not _try(made, model, others), clause
    for name, content in files.items():
        for changed in islice(_changed(content, changes), changes):
            clause = f"a changed number in {name} must be refused by a ForetailError, or be proven to mean nothing"
            with holds(clause):
                _try(made, model, {**files, name: changed})


def _model(trees: int, depth: int, seed: int) -> Lowered:
    x, y = synthetic_arrivals(rows=4000, seed=seed)
    ensemble = RandomForest(trees=trees, depth=depth, seed=seed).fit(x, y).to_ensemble(_FEATURES)
    return lower(ensemble, any_tau=True, max_cells=MAX_CELLS, effort=None)


def _rendered(target: Target, model: Lowered) -> Files:
    with holds("render must write the files of a model"):
        files = target.render(model, PREFIX, MAX_CELLS).files
    assert files, "render must write a file"
    assert all(isinstance(content, bytes) for content in files.values()), "render must give the files as bytes"
    return files


def _try(target: Target, model: Lowered, files: Files) -> bool:
    """True if files are proven equal to a model; what a target says of its own code passes through."""
    try:
        prove_files(model, target, files, MAX_CELLS)
    except PluginError:
        raise
    except ForetailError:
        return False
    return True


def _changed(content: bytes, changes: int) -> Iterator[bytes]:
    """A text with one of its numbers greater by one, for numbers all over it."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return
    numbers = list(_NUMBER.finditer(content))
    for number in numbers[:: max(1, len(numbers) // changes)]:
        yield content[: number.start()] + str(int(number[0]) + 1).encode() + content[number.end() :]
