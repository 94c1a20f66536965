"""One model on held-out runs, in which it decides, beside LQD, tuned thresholds, Complete Sharing and accepting all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import traffic_sha256
from foretail.models.drop.predictor import TreePredictor
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.frontends import from_estimator, is_tree_model, named_columns
from foretail.pipelines.comparison.predictions import check_inputs
from foretail.pipelines.comparison.statistics import mean_interval, percent_change
from foretail.pipelines.data.inputs import column_inputs, open_datasets
from foretail.pipelines.exporting.deciding import AskedModel, FunctionPredictor, asked_model, decider_of
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.open_loop.baselines import tuned
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
