"""Credence on slotted arrivals with a predictor in Python that decides live: what it drops changes what it sees next.

A switch waits wherever Credence asks, until the predictor has answered. Many independent switches wait together, so the
predictor gets batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError, users_code
from foretail.core.labels import require_labels
from foretail.core.summary import Summarised
from foretail.features.catalog import CELL_BYTES, arithmetic_of, training_columns
from foretail.features.dataset.schema import Rules
from foretail.sim_bridge._native import LiveRuns, slotted
from foretail.sim_bridge.arrivals.files import Slotted, slots_shift
from foretail.sim_bridge.open_loop import scores
from foretail.sim_bridge.open_loop.slotted import DEFAULT_RULES
from foretail.sim_bridge.policies import ASKING

Features = NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class LiveRun(Summarised):
    """One sequence of arrivals, in packets; those still buffered after the last slot count as transmitted."""

    arrivals: int  #: packets that came
    transmitted: int  #: those that were sent
    lqd: int  #: those that LQD would have sent
    #: uint8[arrivals], what became of each packet: values of :class:`~foretail.features.records.Outcome`
    outcome: NDArray[np.uint8]
    asked: int  #: packets about which the predictor was asked

    @property
    def sent_percent_of_lqd(self) -> float | None:
        """Packets that were sent, in % of LQD's."""
        return scores.sent_percent_of_lqd(self.transmitted, self.lqd)


@dataclass(frozen=True, eq=False, repr=False)
class LiveResult(Summarised):
    """Results of a live predictor."""

    runs: tuple[LiveRun, ...]  #: in the order of the sequences
    calls: int  #: how often the predictor was called, with a batch each time
    #: always False: Python decided, so there is no code for a switch and no proof of it
    exportable: ClassVar[bool] = False

    @property
    def asked(self) -> int:
        """Decisions of the predictor in all runs."""
        return sum(run.asked for run in self.runs)


def run_live(
    sequences: Sequence[Slotted],
    ports: int,
    buffer: int,
    predictor: Any,
    features: Sequence[str],
    *,
    threshold: float | None = None,
    policy: str = "credence",
    rules: Rules = DEFAULT_RULES,
    seed: int = 0,
    cell_bytes: int = CELL_BYTES,
    average_shift: int = 5,
) -> LiveResult:
    """Run Credence on every sequence; where it asks, `predictor` decides about one packet of each at a time.

    ForetailError naming the predictor, if it raises, changes its input, or answers anything but n numbers; on wrong
    arrivals or settings.

    Parameters
    ----------
    sequences : independent runs side by side, each a whole sequence of arrivals. The more, the larger the batches
    ports, buffer : the switch of every run: its ports, and its shared buffer in packets
    predictor : callable, PyTorch module, or estimator of scikit-learn or XGBoost
        A callable gets int32[n, features] and returns bool[n], True = drop, or n numbers, drop iff above `threshold`.
        A module gets float32 and returns n numbers; an estimator gives the probability of its second class.
    features : columns that the predictor sees, from :data:`foretail.features.catalog.FEATURES`, in this order
    threshold : of numbers, above which they drop, such as 0 for logits; None: they are probabilities, and it is 0.5
    policy : one of ``foretail.sim_bridge.policies.ASKING``, who asks
    rules : how the virtual LQD chooses its victim
    seed : of random victims
    cell_bytes : size of the cells in which lengths are counted; a packet has 1024 bytes
    average_shift : averaged features run over ``2**average_shift`` slots
    """
    if policy not in ASKING:
        raise ForetailError(f"policy {policy!r} asks no predictor: choose one of {', '.join(ASKING)}")
    rules.require_lqd("the slotted model")
    names = list(training_columns(features, own_queues=True))
    _require_units(predictor, cell_bytes, average_shift)
    answer = CheckedPredictor(predictor, threshold)
    by_rules: dict[str, Any] = {"seed": seed, **vars(rules)}
    runs = LiveRuns(policy, len(sequences), names)
    for i, arrivals in enumerate(sequences):
        first_rtt = arrivals.first_rtt
        runs.begin_slots(
            *(i, ports, buffer, arrivals.slot, arrivals.port),
            first_rtt=first_rtt,
            cell_bytes=cell_bytes,
            average_shift=average_shift,
            **by_rules,
        )
    columns = runs.columns()
    seen: Features = columns["features"]
    ended: NDArray[np.bool_] = columns["ended"].view(np.bool_)
    drop = np.zeros(len(sequences), np.bool_)
    asked = np.zeros(len(sequences), np.int64)
    calls = 0
    while (waiting := np.flatnonzero(~ended)).size:
        drop[waiting] = answer(seen[waiting])
        asked[waiting] += 1
        calls += 1
        runs.step(drop.view(np.uint8))

    def finished(i: int, arrivals: Slotted) -> LiveRun:
        result = runs.result(i)
        lqd = slotted("lqd", ports, buffer, arrivals.slot, arrivals.port, labels=False, **by_rules)["transmitted"]
        return LiveRun(len(arrivals), result["transmitted_packets"], lqd, result["outcome"], int(asked[i]))

    return LiveResult(tuple(finished(i, arrivals) for i, arrivals in enumerate(sequences)), calls)


def _require_units(predictor: Any, cell_bytes: int, average_shift: int) -> None:
    """Raise ForetailError when a model, or a method of one, says that it reads features in other units."""
    inputs = getattr(getattr(predictor, "__self__", predictor), "features", ())
    params = {item.name: item.params for item in inputs if getattr(item, "params", "")}
    known = arithmetic_of(params)
    if known.get("cell_bytes", cell_bytes) != cell_bytes:
        raise ForetailError(
            f"the model counts lengths in cells of {known['cell_bytes']} bytes, and this run in cells of {cell_bytes}: "
            f"give cell_bytes={known['cell_bytes']}"
        )
    shift = max(slots_shift(known["average_shift"]), 0) if "average_shift" in known else average_shift
    if shift != average_shift:
        raise ForetailError(
            f"the model reads averages over 2**{shift} slots, and this run has 2**{average_shift}: give "
            f"average_shift={shift}"
        )


class CheckedPredictor:
    """A predictor of any kind as a function from int32[n, features] to bool[n], which refuses what is not an answer."""

    def __init__(self, predictor: Any, threshold: float | None) -> None:
        self._name = getattr(predictor, "__qualname__", type(predictor).__qualname__)
        self._ask = _function_of(predictor, self._name)
        self._threshold = threshold

    def __call__(self, rows: Features) -> NDArray[np.bool_]:
        given = rows.copy()
        with users_code(lambda reason: self._fault(f"fails on {len(rows)} rows ({reason})", "make it answer")):
            answer = np.asarray(self._ask(given))
        if not np.array_equal(given, rows):
            raise self._fault("changed its input", "let it work on a copy")
        if answer.shape != (len(rows),) or answer.dtype.kind not in "biuf":
            reason = f"answered {answer.dtype} of shape {answer.shape} to {len(rows)} rows"
            raise self._fault(reason, "return one bool or number for each")
        if answer.dtype.kind == "f" and np.isnan(answer).any():
            row = rows[int(np.argmax(np.isnan(answer)))].tolist()
            raise self._fault(f"answered NaN to the features {row}", "return a number")
        if answer.dtype.kind == "b":
            return answer
        if self._threshold is None and (beyond := answer[(answer < 0) | (answer > 1)]).size:
            fix = "return booleans, or give threshold=NUMBER above which it drops, which is 0 for logits"
            raise self._fault(f"answered {beyond[0]:.6g}, which is no probability", fix)
        drop: NDArray[np.bool_] = answer > (0.5 if self._threshold is None else self._threshold)
        return drop

    def _fault(self, what: str, fix: str) -> ForetailError:
        return ForetailError(f"the predictor {self._name} {what}: {fix}")


def _function_of(predictor: Any, name: str) -> Callable[[Features], Any]:
    """Return the function to call; packages are only looked for where the predictor's own has been imported already."""
    torch, xgboost = sys.modules.get("torch"), sys.modules.get("xgboost")
    if torch is not None and isinstance(predictor, torch.nn.Module):
        return _module(torch, predictor, name)
    if xgboost is not None and isinstance(predictor, xgboost.Booster):
        return lambda x: predictor.inplace_predict(x)
    if hasattr(predictor, "predict_proba"):
        require_labels(f"predictor {name}", getattr(predictor, "classes_", ()))
        return lambda x: predictor.predict_proba(x)[:, 1]
    if hasattr(predictor, "predict"):
        if any(kind.__name__ == "OutlierMixin" for kind in type(predictor).__mro__):
            raise ForetailError(
                f"the predictor {name} detects outliers, -1 for one and 1 for none: give a function that answers 1 for "
                "a drop"
            )
        if hasattr(predictor, "classes_"):
            require_labels(f"predictor {name}", predictor.classes_)
        return lambda x: predictor.predict(x)
    if callable(predictor):
        return lambda x: predictor(x)
    raise ForetailError(
        f"a predictor must be a callable, a PyTorch module or a fitted estimator, not {type(predictor).__name__}"
    )


def _module(torch: Any, module: Any, name: str) -> Callable[[Features], Any]:
    if module.training:
        raise ForetailError(f"the predictor {name} is in training mode: call its eval() first")
    device = next((parameter.device for parameter in module.parameters()), "cpu")

    def ask(x: Features) -> Any:
        with torch.inference_mode():
            out = module(torch.from_numpy(x.astype(np.float32)).to(device))
        out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
        return (out.float() if out.is_floating_point() else out).cpu().numpy()

    return ask
