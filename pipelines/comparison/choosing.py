"""The choice of a rule for given traffic: windows of it are replayed under the zoo and under tuned thresholds.

The rule that sends most on the whole sample, which is replayed in two halves, is chosen. What a choice is worth is
cross-fitted on windows, each of which starts with an empty buffer: on each window the rule and the alpha of Dynamic
Thresholds are those that send most on the other windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.catalog import CELL_BYTES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import traffic_sha256
from foretail.models import zoo
from foretail.models.drop.predictor import TreePredictor
from foretail.models.drop.thresholds.adaptive_threshold import AdaptiveThreshold, search_threshold
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.frontends import from_estimator, is_tree_model, named_columns
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval, percent_change
from foretail.pipelines.data.inputs import column_inputs, open_datasets
from foretail.pipelines.exporting.network import AskedModel, FunctionPredictor, asked_model, check_inputs, decider_of
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, Slotted
from foretail.sim_bridge.open_loop.baselines import CANDIDATES, tuned
from foretail.sim_bridge.open_loop.known import PACKETS, KnownRun
from foretail.sim_bridge.open_loop.replay import Contender, bytes_sent
from foretail.sim_bridge.open_loop.scores import recovered_loss
from foretail.sim_bridge.python_policies import PythonPolicy

if TYPE_CHECKING:
    import pandas as pd


Runs = str | Path | Dataset | Sequence[str | Path | Dataset]

MODEL, LQD, ACCEPT = "model", "LQD", "always accept"


def open_runs(runs: Runs) -> list[Dataset]:
    """Return the datasets that paths name, in order.

    ForetailError when a folder holds none, or a damaged one.

    Parameters
    ----------
    runs : a dataset folder, the run folder of a ``foretail collect``, the folder of its sweep, or several of them

    Examples
    --------
    >>> open_runs([])
    []
    """
    several = [runs] if isinstance(runs, str | Path | Dataset) else runs
    return [
        dataset for one in several for dataset in ([one] if isinstance(one, Dataset) else open_datasets([str(one)]))
    ]


def judge(
    model: Any,
    runs: Runs,
    tuned_on: Runs,
    *,
    features: Sequence[str] | None = None,
    policy: str | None = None,
    threshold: float | None = None,
    store_dir: str = "outputs/store",
) -> pd.DataFrame:
    """Return what a switch sends while a model decides in it, and policies that need no model.

    A row for the model, for each policy without a model with the setting that sends most on `tuned_on`, for always
    accepting (FollowLQD) and for LQD. Columns: ``who``; ``sent_percent_of_lqd``, the geometric mean over runs of the
    data bytes that are sent, with ``low`` and ``high``, the ends of its 95 % t interval; ``gain_percent``,
    ``gain_low`` and ``gain_high``, the same of the ratio to the tuned policy that sends most on `tuned_on`, paired by
    run; ``recovered_loss``, the share of what always accepting loses against LQD that is sent after all; ``runs``;
    ``policy``, which asks the model in its row.
    Intervals are NaN with one run.

    ForetailError when a run is on both sides, when the model and the runs count in other units, and when nobody can say
    what the model sends.

    Parameters
    ----------
    model : an ensemble, a network, a trained predictor of Foretail, a fitted classifier of scikit-learn, XGBoost or
        LightGBM, a PyTorch module, a function, or a path or address as of ``foretail replay model=``, FILE.py:FUNCTION
        among them. Trees run as integers in the simulator; anything that is no trees is called in Python, once for
        each packet that is asked about
    runs : held-out runs, as of :func:`open_runs`
    tuned_on : other runs, on which the settings of policies are chosen: those that trained the model
    features : names of the catalog, in the order of the model's columns, where the model does not name them
    policy : the policy that asks: ``credence``, ``learned``, which lets the model decide about every packet, or
        ``guarded``. By default the one for which the model was made; ``credence`` for trees and networks of labels,
        ``learned`` for functions and PyTorch modules, whose purpose nobody knows: for a module that learned labels give
        ``credence``
    threshold : of the numbers that a function or a module answers, above which it drops, such as 0 for logits; None:
        they are probabilities, and it is 0.5. ForetailError on other numbers without it
    store_dir : where the C of a network is kept

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.api import collect_slots, judge, workloads
    >>> with TemporaryDirectory() as folder:
    ...     runs = [
    ...         collect_slots(f"{folder}/{seed}", workloads.Incast(fan_in=5), ports=8, slots=2000, seed=seed)
    ...         for seed in (1, 2, 3)
    ...     ]
    ...     table = judge(lambda rows: rows[:, 0] > 127, runs[1:], tuned_on=runs[:1], features=["pressure"])
    >>> table["who"].tolist()[0], table["runs"].tolist()[0]
    ('model', 2)
    """
    judged, training = open_runs(runs), open_runs(tuned_on)
    _refuse_shared(judged, training)
    predictor = _asked(model, judged, features, threshold, store_dir)
    for run in judged:
        check_inputs(predictor, run.manifest.cell_bytes, run.manifest.average_shift, f"the dataset {run.path} gives")
    decider = decider_of(predictor, policy)
    if decider.scorer is None:
        unknown = ", ".join(item.name for item in predictor.features)
        raise ForetailError(f"no replay computes all of {unknown}: judge the model in a network (foretail evaluate)")
    return compared_runs({MODEL: (decider.policy, None, decider.scorer)}, judged, training)


def compared_runs(
    models: Mapping[str, Contender], judged: Sequence[Dataset], training: Sequence[Dataset]
) -> pd.DataFrame:
    """Return the rows of :func:`judge` for several models, which are rows by their names."""
    import pandas as pd

    baselines = tuned(training)
    contenders: dict[str, Contender] = {
        **models,
        **{str(one): one.contender for one in baselines},
        ACCEPT: ("followlqd", None, None),
        LQD: ("lqd", None, None),
    }
    sent = np.array([bytes_sent(run, list(contenders.values())) for run in judged], np.float64).T
    by_name = dict(zip(contenders, sent, strict=True))
    best = by_name[str(baselines[0])]
    total = {name: int(of_runs.sum()) for name, of_runs in by_name.items()}
    rows = []
    for name, of_runs in by_name.items():
        share, gain = (mean_interval(np.log(of_runs / other).tolist()) for other in (by_name[LQD], best))
        rows.append(
            {
                "who": name,
                "sent_percent_of_lqd": _percent(share.mean) + 100,
                "low": _percent(share.low) + 100,
                "high": _percent(share.high) + 100,
                "gain_percent": _percent(gain.mean),
                "gain_low": _percent(gain.low),
                "gain_high": _percent(gain.high),
                "recovered_loss": recovered_loss(total[LQD], total[name], total[ACCEPT]),
                "runs": len(judged),
                "policy": contenders[name][0],
            }
        )
    return pd.DataFrame(rows)


def _percent(log: float | None) -> float:
    """A difference of logarithms as a change in %; NaN where there is none."""
    change = percent_change(log)
    return np.nan if change is None else change


def _refuse_shared(judged: Sequence[Dataset], training: Sequence[Dataset]) -> None:
    """Raise ForetailError without runs on a side, and on traffic that is on both."""
    if not judged or not training:
        raise ForetailError(f"{'tuned_on' if judged else 'runs'} is empty: name at least one run of foretail collect")
    seen = {traffic_sha256(run.manifest): run.path for run in training}
    for run in judged:
        if (other := seen.get(traffic_sha256(run.manifest))) is not None:
            raise ForetailError(f"{run.path} is to be judged, and {other} of tuned_on has its traffic: give other runs")


def _asked(
    model: Any, runs: Sequence[Dataset], features: Sequence[str] | None, threshold: float | None, store_dir: str
) -> AskedModel:
    """Return whatever a user calls a model as it decides."""
    store = Store(store_dir)
    if isinstance(model, str | Path):
        python = PythonPolicy.of(str(model))
        if python is not None:
            return FunctionPredictor.of_file(python)
        return asked_model(load_predictor(str(model), Tracking(), store), store)
    if isinstance(model, Ensemble):
        return model
    if hasattr(model, "dense_layers"):  # a Network, whose packages are an extra
        return asked_model(model, store)
    columns = features or named_columns(model)
    if not columns:
        raise ForetailError(f"the {type(model).__name__} does not name its columns: give features=[NAME, ...]")
    inputs = column_inputs(columns, runs)
    if isinstance(model, TreePredictor):
        return model.to_ensemble(inputs)
    if is_tree_model(model):
        return from_estimator(model, inputs)
    return FunctionPredictor(model, [item.name for item in inputs], threshold)


WINDOWS = 10
LEAST_OVERLOADED = 5
"""A sample with fewer windows that overload the buffer says too little."""
SEARCHED = "searched here"
_DT = "dt"


@dataclass(frozen=True)
class Candidate:
    """A rule or a policy that can be chosen or stands beside the chosen one."""

    name: str
    kind: str  #: {'rule', 'threshold', 'bound'}, of which only rules are chosen
    policy: str  #: of the switch
    rule: AdaptiveThreshold | None = None  #: that the policy ``learned`` asks
    alpha: float | None = None  #: of a threshold

    def log_sent(self, run: KnownRun) -> float:
        """Return the logarithm of what is sent over what LQD sends."""
        scorer = None if self.rule is None else self.rule.scorer()
        parameters = {} if self.alpha is None else {"alpha": [self.alpha]}
        return math.log(max(run.sent(self.policy, scorer, **parameters), 1) / max(run.lqd, 1))


def library(names: Sequence[str] | None = None) -> list[Candidate]:
    """Return rules of the zoo, all of them by default."""
    return [Candidate(name, "rule", "learned", zoo.rule(name).rule) for name in names or zoo.names()]


def _beside() -> list[Candidate]:
    """Every baseline with every setting, always accepting, and LQD."""
    thresholds = [Candidate(str(one), "threshold", one.policy, alpha=one.alpha) for one in CANDIDATES]
    return [*thresholds, Candidate(ACCEPT, "threshold", "followlqd"), Candidate(LQD, "bound", "lqd")]


@dataclass(frozen=True, eq=False)
class Logs:
    """Packets that candidates send on windows."""

    candidates: Sequence[Candidate]
    values: NDArray[np.float64]  #: float64[windows, candidates], logarithms of what is sent over what LQD sends

    def places(self, *names: str, kind: str | None = None, policy: str | None = None) -> list[int]:
        """Return the columns of these names, of a kind, or of a policy."""
        return [
            place
            for place, one in enumerate(self.candidates)
            if one.name in names or one.kind == kind or one.policy == policy
        ]

    def best(self, among: Sequence[int], rows: Sequence[int] | None = None) -> int:
        """Return the column among some that sends most on some windows, of equals the first."""
        values = self.values if rows is None else self.values[list(rows)]
        return among[int(np.argmax(values[:, among].sum(axis=0)))]

    def held_out(self, among: Sequence[int]) -> list[int]:
        """Return for each window the column among some that sends most on the others; on all where it is alone."""
        count = len(self.values)
        return [self.best(among, [other for other in range(count) if other != row] or None) for row in range(count)]


def measured(runs: Sequence[KnownRun], candidates: Sequence[Candidate], jobs: int = 1) -> Logs:
    """Return what candidates send on runs, in `jobs` threads."""
    for run in runs:
        _ = run.lqd  # once, before threads ask
    with ThreadPoolExecutor(jobs) as pool:
        logs = list(pool.map(lambda pair: pair[1].log_sent(pair[0]), product(runs, candidates)))
    return Logs(candidates, np.reshape(np.array(logs), (len(runs), len(candidates))))


@dataclass(frozen=True)
class SearchWorth:
    """A search on the sample, judged on the half of the windows that it did not see."""

    gain_percent: PairedDifference  #: over the rule of the library that is chosen on the same half, over windows
    trials: int  #: rules that were tried in each search
    is_chosen: bool  #: the mean gain is above 0


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Summarised):
    """A rule for given traffic, and what it is worth there.

    Attributes
    ----------
    name, rule : the chosen rule
    table : DataFrame, a row for each rule and policy, see :func:`choose`
    gain_percent : of packets or bytes that are sent over Dynamic Thresholds with the best alpha, cross-fitted
    """

    name: str
    rule: AdaptiveThreshold
    logs: Logs = field(repr=False)
    packets: int  #: that arrive in all windows
    cell_bytes: int
    average_shift: int
    of_zoo: str  #: the rule of the zoo that sends most
    search: SearchWorth | None = None
    files: tuple[str, ...] = ()  #: in the run folder of ``foretail choose``
    captions: Mapping[str, str] = field(default_factory=dict)  #: of figures among them

    @property
    def windows(self) -> int:
        """Windows of the sample."""
        return len(self.logs.values)

    @cached_property
    def dt(self) -> Candidate:
        """Dynamic Thresholds with the alpha that sends most on the windows."""
        return self.logs.candidates[self.logs.best(self.logs.places(policy=_DT))]

    @cached_property
    def overloaded(self) -> int:
        """Windows on which the policies and rules do not all send the same."""
        return int(np.count_nonzero(np.ptp(self.logs.values, axis=1) > 0))

    @cached_property
    def agreeing(self) -> int:
        """Windows without which the others choose the rule that the whole sample chooses."""
        places = self.logs.places(kind="rule")
        return self.logs.held_out(places).count(self.logs.places(self.of_zoo)[0])

    @cached_property
    def gain_percent(self) -> PairedDifference:
        """Gain over tuned Dynamic Thresholds in %, both chosen on the other windows, with an interval over windows."""
        values, rows = self.logs.values, range(self.windows)
        rules, alphas = (self.logs.held_out(self.logs.places(**of)) for of in ({"kind": "rule"}, {"policy": _DT}))
        return mean_interval([100 * (values[row, rules[row]] - values[row, alphas[row]]) for row in rows])

    @property
    def suffices(self) -> bool:
        """True if the sample says which rule to use."""
        return self.overloaded >= LEAST_OVERLOADED

    def ensemble(self) -> Ensemble:
        """Return the chosen rule as trees, in the units of the sample's features."""
        return self.rule.ensemble(self.cell_bytes, self.average_shift)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each candidate, the one that sends most first.

        Columns: ``name``, ``kind``, ``sent_percent_of_lqd``, the geometric mean over windows, ``gain_percent`` over
        Dynamic Thresholds with the best alpha, and ``worst_percent``, the gain on its worst window.
        """
        import pandas as pd

        gains = 100 * (self.logs.values - self.logs.values[:, [self.logs.places(self.dt.name)[0]]])
        rows = [
            {
                "name": one.name,
                "kind": one.kind,
                "sent_percent_of_lqd": 100 * math.exp(self.logs.values[:, place].mean()),
                "gain_percent": gains[:, place].mean(),
                "worst_percent": gains[:, place].min(),
            }
            for place, one in enumerate(self.logs.candidates)
        ]
        return pd.DataFrame(rows).sort_values("sent_percent_of_lqd", ascending=False, kind="stable", ignore_index=True)

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "chosen": self.name,
            "of_zoo": self.of_zoo,
            "numbers": self.rule.numbers,
            "centres": self.rule.centres,
            "windows": self.windows,
            "packets": self.packets,
            "overloaded_windows": self.overloaded,
            "agreeing_windows": self.agreeing,
            "suffices": self.suffices,
            "tuned_dt": self.dt.name,
            "gain_percent": asdict(self.gain_percent),
            "search": None if self.search is None else asdict(self.search),
            "rows": self.table.to_dict("records"),
            **({"files": self.files, "captions": self.captions} if self.files else {}),
        }

    def verdict(self) -> list[str]:
        """Three sentences: which rule, what it is worth, and whether the sample suffices."""
        gain = self.gain_percent
        worth = (
            f"On windows that did not choose it, the rule of the zoo sends {interval_text(gain)} % more than "
            f"Dynamic Thresholds with the best alpha ({self.dt.name})."
            if self.windows > 1
            else "One window chooses a rule and cannot judge it: give a longer sample."
        )
        sample = (
            f"{self.overloaded} of {self.windows} windows overload the buffer, and {self.agreeing} agree on the rule"
        )
        enough = (
            "the sample suffices" if self.suffices else f"fewer than {LEAST_OVERLOADED} are a small sample: replay more"
        )
        sentences = [f"Use {self.name}.", worth, f"{sample}: {enough}."]
        if self.search is not None:
            use = "it is the chosen rule" if self.search.is_chosen else "so the rule of the zoo stays"
            sentences.append(
                f"A search of {self.search.trials:,} rules on every other window sends "
                f"{interval_text(self.search.gain_percent)} % more on the others: {use}."
            )
        return sentences

    def tables(self) -> list[Table]:
        """The best rules, each policy with its best setting, always accepting, and LQD."""
        frame = self.table
        groups = {one.name: one.name if one.kind == "rule" else one.policy for one in self.logs.candidates}
        best = frame.assign(of=frame["name"].map(groups)).drop_duplicates("of")
        rules = best[best["kind"] == "rule"].head(3)
        shown = best[(best["kind"] != "rule") | best["name"].isin([*rules["name"], self.name])]
        columns = {
            "name": "rule or policy",
            "sent_percent_of_lqd": "sent, % of LQD",
            "gain_percent": f"over {self.dt.name}, %",
            "worst_percent": "its worst window, %",
        }
        note = (
            f"{self.windows} windows, {self.packets:,} packets; all settings are those that send most on these windows"
        )
        return [Table.of_frame("A rule for this traffic", shown, columns, note)]


def choose(
    arrivals: Runs | Slotted | pd.DataFrame,
    ports: int | None = None,
    buffer: int | None = None,
    *,
    windows: int = WINDOWS,
    sample_packets: int = PACKETS,
    rules: Sequence[str] | None = None,
    trials: int = 0,
    seed: int = 1,
    jobs: int = 1,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> Choice:
    """Choose a rule of the zoo for given traffic.

    ForetailError without an arrival, without a switch for bare arrivals, and on an unknown rule.

    Parameters
    ----------
    arrivals : a dataset, its path, a run or sweep of ``foretail collect``, several of them, or packets in slots: a
        :class:`~foretail.sim_bridge.arrivals.files.Slotted` or a DataFrame with the integer columns ``slot`` and
        ``port`` in order of arrival
    ports, buffer : with packets in slots, the ports of the switch and the packets that its buffer holds
    windows : of each run, spread evenly over it, each from an empty buffer; fewer of a run that is short
    sample_packets : packets of all windows of a run; a run with fewer is cut into windows whole
    rules : names of the zoo; None: all
    trials : rules that a search on this very sample tries, starting from the chosen one; 0: no search
    seed, jobs, report : of the search's draws, threads, called with the share done and words on it

    Examples
    --------
    >>> import numpy as np
    >>> from foretail.api import choose, workloads
    >>> batches = list(workloads.PoissonBursts(load=0.4).batches(20, 1000, 20_000, seed=1))
    >>> choice = choose(batches[0], ports=20, buffer=1000)
    >>> choice.windows, choice.gain_percent.mean > 0
    (9, True)
    """
    (halves, runs), cell_bytes, average_shift = _sample(arrivals, ports, buffer, (2, windows), sample_packets)
    if not any(run.packets for run in runs):
        raise ForetailError("the sample has no packet: give other arrivals")
    on_halves = measured(halves, library(rules), jobs)
    best = on_halves.candidates[on_halves.best(range(len(on_halves.candidates)))]
    assert best.rule is not None
    logs = measured(runs, [*on_halves.candidates, *_beside()], jobs)
    choice = Choice(best.name, best.rule, logs, sum(run.packets for run in runs), cell_bytes, average_shift, best.name)
    return choice if not trials else _searched(choice, runs, halves, trials, seed, jobs, report)


def _searched(
    choice: Choice,
    runs: Sequence[KnownRun],
    halves: Sequence[KnownRun],
    trials: int,
    seed: int,
    jobs: int,
    report: Callable[[float, str], None],
) -> Choice:
    """The choice with a search on every other window, and on the whole sample where that sends more on the others."""
    if len(runs) < 2:
        raise ForetailError(
            "a search is judged on windows that it has not seen, and there is one: give a longer sample"
        )
    logs, gains = choice.logs, np.zeros(len(runs))
    places = logs.places(kind="rule")

    def searched(on: Sequence[KnownRun], start: AdaptiveThreshold | None, part: int) -> AdaptiveThreshold:
        assert start is not None

        def tell(share: float, words: str) -> None:
            report((part + share) / 3, f"search {part + 1} of 3: {words}")

        return search_threshold(on, start, policy="learned", trials=trials, seed=seed, jobs=jobs, report=tell).rule

    alternate = [list(range(first, len(runs), 2)) for first in (0, 1)]
    for part, (rows, others) in enumerate(zip(alternate, alternate[::-1], strict=True)):
        of_library = logs.best(places, rows)
        rule = searched([runs[row] for row in rows], logs.candidates[of_library].rule, part)
        values = measured([runs[row] for row in others], [Candidate(SEARCHED, "rule", "learned", rule)], jobs).values
        gains[others] = 100 * (values[:, 0] - logs.values[others, of_library])
    worth = SearchWorth(mean_interval(gains.tolist()), trials, bool(gains.mean() > 0))
    if not worth.is_chosen:
        return replace(choice, search=worth)
    own = Candidate(SEARCHED, "searched", "learned", searched(halves, choice.rule, 2))
    assert own.rule is not None
    values = np.concatenate([logs.values, measured(runs, [own], jobs).values], axis=1)
    return replace(choice, name=SEARCHED, rule=own.rule, logs=Logs([*logs.candidates, own], values), search=worth)


def _sample(
    arrivals: Any, ports: int | None, buffer: int | None, counts: Sequence[int], packets: int
) -> tuple[list[list[KnownRun]], int, int]:
    """The windows of all runs of a sample, for each count of windows in a run, and the units of their features."""
    if hasattr(arrivals, "columns"):
        arrivals = _slotted(arrivals)
    if isinstance(arrivals, Slotted):
        if ports is None or buffer is None:
            raise ForetailError("packets in slots need a switch: give ports=N and buffer=B, in packets")
        cuts = KnownRun.windows_in_slots(arrivals, ports, buffer, counts, packets)
        return [list(windows) for windows in cuts], CELL_BYTES, AVERAGE_SHIFT
    datasets = open_runs(arrivals)
    units = {(one.manifest.cell_bytes, one.manifest.average_shift): one.path for one in datasets}
    if len(units) > 1:
        one, other = list(units.values())[:2]
        raise ForetailError(f"{one} and {other} count in other units: choose a rule for each of them")
    if not units:
        raise ForetailError("there is no dataset: name at least one run of foretail collect")
    ((cell_bytes, average_shift),) = units
    of_runs = [KnownRun.windows_of(one, counts, packets) for one in datasets]
    return [list(chain.from_iterable(windows)) for windows in zip(*of_runs, strict=True)], cell_bytes, average_shift


def _slotted(frame: pd.DataFrame) -> Slotted:
    """The packets of a frame; ForetailError without integers in slot and port."""
    for name in ("slot", "port"):
        if name not in frame.columns or frame[name].dtype.kind not in "iu":
            raise ForetailError(f"the frame has no column {name} of integers: give slot and port of each packet")
    return Slotted(frame["slot"].to_numpy(np.int64), frame["port"].to_numpy(np.int32))
