"""What the contracts of all predictors say of parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from foretail.core.errors import ForetailError
from foretail.core.plugins import FAILURES, PluginError
from foretail.models.drop.predictor import Parameterised

P = TypeVar("P", bound=Parameterised)


def check_parameters(fresh: P, fit: Callable[[P], object]) -> None:
    """Raise AssertionError unless every parameter is declared, and `fit` refuses what its constraint does not allow."""
    parameters = fresh.parameters()
    assert set(parameters) == set(fresh.constraints()), "every constructor parameter must be declared"
    for name, constraint in fresh.constraints().items():
        assert constraint.allows(parameters[name]), f"the default of {name} breaks its own constraint"
        broken = copy.deepcopy(fresh)
        setattr(broken, name, object())
        refuses(partial(fit, broken), f"fit must refuse a malformed {name}")
    learned = [name for name in vars(fresh) if name.endswith("_")]
    assert not learned, f"the constructor must only store parameters, not learn {learned}"


@contextmanager
def holds(clause: str) -> Iterator[None]:
    """Raise AssertionError, with a clause of the contract, when what is done raises anything else."""
    try:
        yield
    except AssertionError:
        raise
    except FAILURES as error:
        raise AssertionError(f"{clause}: {error}") from error


def refuses(action: Callable[[], object], clause: str) -> None:
    """Raise AssertionError, with a clause of the contract, unless an action ends in a ForetailError of its own."""
    with holds(clause):
        try:
            action()
        except PluginError:
            raise
        except ForetailError:
            return
    raise AssertionError(clause)
