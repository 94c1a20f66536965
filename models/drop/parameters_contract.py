"""Rules on parameters that the contracts of all predictors share."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, cast

from foretail.core.errors import ForetailError
from foretail.core.plugins import FAILURES, PluginError
from foretail.models.drop.predictor import Parameterised

P = TypeVar("P", bound=Parameterised)
P2 = TypeVar("P2")


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


def made_of(what: object, base: type[P2], called: str) -> P2:
    """Return what a class or another callable makes without arguments, or a copy of what was made already.

    AssertionError when it cannot be made, or is none of `base`; `called` is what the contract calls it.
    """
    with holds(f"{called} must be made without arguments"):
        made = what() if callable(what) else copy.deepcopy(what)
    lacks = [name for name in _members(base) if not hasattr(made, name)]
    if not (isinstance(made, base) if not getattr(base, "_is_protocol", False) else not lacks):
        words = f", and lacks {', '.join(lacks)}" if lacks else ""
        raise AssertionError(f"{called} must be a {base.__name__}: {type(made).__name__} is none{words}; subclass it")
    return cast("P2", made)


def _members(base: type) -> list[str]:
    """Members that users see of a class and of the classes that it is made of."""
    return sorted(
        name
        for kind in base.__mro__
        if kind.__module__.startswith("foretail.")
        for name in [*vars(kind), *vars(kind).get("__annotations__", {})]
        if not name.startswith("_")
    )


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
