"""``foretail demo``: where a prediction pays and where it does not, in one screen and one page.

Two predictors train on bursts in slots, are exported to C and proven, and decide on held-out runs beside tuned
thresholds. A third one trains on a network of TCP senders, whose policies are compared by the cost J of their flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.networks import Ns3Network
from foretail.configs.schema.packet_stages import CollectConfig, DemoConfig, EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.core.files import write_file
from foretail.core.summary import Summarised
from foretail.export.p4.target import P4
from foretail.export.proof import Certificate
from foretail.export.target import export
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import Outcome
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.models.scoring.figure_style import FIGURE_KINDS, panels, styled, with_legend
from foretail.pipelines.comparison.choosing import LQD, compared_runs
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_policies, track_flows
from foretail.pipelines.comparison.policy_runs import PolicyRun
from foretail.pipelines.comparison.statistics import PairedDifference, chance_text, interval_text
from foretail.pipelines.data.collecting import collect_runs, made_runs
from foretail.pipelines.exporting.network import decider_of
from foretail.pipelines.exporting.predictor import NAME, ExportedPredictor, export_table, export_to_store
from foretail.pipelines.reporting.page import PAGE_FILE, render_page
from foretail.pipelines.reporting.run_record import RunRecord
from foretail.pipelines.runs.notes import on_page_alone, show_early
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.progress import Steps
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings, compose_training
from foretail.pipelines.training.fitting import TrainResult, register, train_model
from foretail.sim_bridge.arrivals.files import SLOT_NS
from foretail.sim_bridge.open_loop.baselines import Baseline, tuned
from foretail.sim_bridge.open_loop.replay import Contender, replay_of
from foretail.sim_bridge.policy_settings import policy_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TCP = "forest under TCP"
SLOTS_MODELS = SENT, LABELS = "trees for packets sent", "Credence with a forest"
BURST_FIGURE = "slots_burst"
CAPTIONS = {
    BURST_FIGURE: "The shared buffer in the last slots of a part of a held-out run (left), and the packets lost in all "
    "of that part, minus those that LQD loses (right)."
}
NEAR_SLOTS = 200
"""Time in the left panel of the picture."""
P4_FILE = f"p4/{NAME}.p4"


@dataclass(frozen=True, repr=False)
class DemoResult(Summarised):
    """Predictors in slots and under TCP."""

    folder: Path  #: of the run
    trained: Mapping[str, TrainResult]  #: by what they are: `SENT` and `LABELS` in slots, `TCP` on labels under TCP
    exported: Mapping[str, ExportedPredictor]  #: the C of each, proven
    p4: Certificate  #: of the P4 of the trees trained for packets sent
    tuned: str  #: the policy without a model that sends most on the training runs in slots, with its setting
    compared: pd.DataFrame  #: packets sent in slots, as :func:`~foretail.pipelines.comparison.choosing.judge` has them
    flows: FlowsResult  #: policies under TCP, the tuned threshold among them
    threshold: str  #: the policy of `flows` that is that threshold
    referee: PolicyRun | None  #: the first run of `flows` again in ns-3, if it was wanted
    step_seconds: Mapping[str, float]  #: wall time of each step in this run; what the store has takes next to none

    def document(self) -> dict[str, Any]:
        """Every figure, seed, dataset hash and timing, JSON-like."""
        return {
            "train": {name: trained.document() for name, trained in self.trained.items()},
            "export": {**self.exported, "p4": self.p4},
            "slots": self.compared.to_dict("records"),
            "tcp": self.flows.document(),
            "tuned_threshold": self.threshold,
            "in_ns3": None
            if self.referee is None
            else {name: getattr(self.referee, name) for name in ("policy", "seed", "flows_sha256", "cpu_seconds")},
            "step_seconds": self.step_seconds,
            "files": (*(f"{BURST_FIGURE}.{kind}" for kind in ("parquet", *FIGURE_KINDS)), P4_FILE, *self.flows.files),
            "captions": {**CAPTIONS, **self.flows.captions},
        }

    def verdict(self) -> list[str]:
        """Sentences: where the prediction pays, where it does not, and what to do with traffic of one's own."""
        trees = self.compared.set_index("who").loc[SENT].to_dict()
        gain = PairedDifference(trees["gain_percent"], trees["gain_low"], trees["gain_high"], trees["runs"])
        pays = chance_text(gain, "run", above="so prediction pays", below="so prediction does not pay")
        cost = self.flows.differences("cost", self.threshold)["credence"]
        costs = chance_text(cost, "seed", above="so prediction does not pay", below="so prediction pays")
        model = str(self.folder / ENSEMBLE_FILE).removeprefix(f"{Path.cwd()}/")
        return [
            f"Bursts, senders that do not react: the trees send {interval_text(gain)} % more packets than "
            f"{self.tuned}, {pays}.",
            f"TCP: Credence's cost minus that of {policy_words(self.threshold)} is {interval_text(cost)}, {costs}.",
            *self._same_in_ns3(),
            "Which is your case? foretail collect source=pcap log=FILE reads a capture; foretail replay "
            f"'datasets=[outputs/collect/RUN]' model={model} compares predictor and thresholds.",
        ]

    def tables(self) -> list[Table]:
        """Packets sent in slots, and costs under TCP; for the page also datasets, scores, proofs and timings."""
        steps = Table("Steps", ("step", "seconds"), tuple(self.step_seconds.items()))
        more = [
            *(
                replace(table, title=f"{table.title}: {name}")
                for name, one in self.trained.items()
                for table in one.tables()
            ),
            *(replace(export_table(one), title=f"C, proven: {name}") for name, one in self.exported.items()),
            *self.flows.tables(),
            steps,
        ]
        return [slots_table(self.compared, self.exported), self.tcp_table(), *more]

    def tcp_table(self) -> Table:
        """Costs of policies under TCP."""
        less = self.flows.differences("cost", self.threshold)
        columns = {
            "cost J": "cost",
            "burst p95": "slowdown.incast.p95",
            "timed out, %": "timed_out_percent",
        }
        means = {title: self.flows.means(metric) for title, metric in columns.items()}
        rows = [
            {
                "policy": policy_words(policy),
                **{title: each[policy].mean for title, each in means.items()},
                "J minus tuned DT's": interval_text(less[policy]) if policy in less else None,
            }
            for policy in self.flows.policies
        ]
        seeds = len({run.seed for run in self.flows.runs})
        note = f"{seeds} held-out seeds, the same flows under every policy; Credence asks the exported C of a forest"
        return Table.of_rows("TCP: cost of the flows, less is better", rows, note)

    def write_page(self, run_dir: Path) -> Path:
        """Write the page of the run."""
        write_file(run_dir / PAGE_FILE, render_page([RunRecord.open(run_dir)]))
        return run_dir / PAGE_FILE

    def _same_in_ns3(self) -> list[str]:
        """Say whether ns-3's TCP ends every flow at the same time, and what that costs."""
        if self.referee is None:
            return []
        theirs = self.referee
        (ours,) = (run for run in self.flows.runs if (run.policy, run.seed) == (theirs.policy, theirs.seed))
        same = "at the same time" if ours.flows_sha256 == theirs.flows_sha256 else "at other times"
        return [
            f"ns-3's TCP ends every flow {same} under {policy_words(ours.policy)} with seed {ours.seed}, in "
            f"{theirs.cpu_seconds / ours.cpu_seconds:.3g} times the CPU time."
        ]


def slots_table(compared: pd.DataFrame, exported: Mapping[str, ExportedPredictor]) -> Table:
    """Return the packets that each policy sends in slots, and what is proven of the predictors among them."""
    rows = [
        {
            "policy": row["who"],
            "sent, % of LQD's": f"{row['sent_percent_of_lqd']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
            "gain over best threshold, %": f"{row['gain_percent']:+.2f} [{row['gain_low']:+.2f}, "
            f"{row['gain_high']:+.2f}]",
        }
        for row in compared.sort_values("sent_percent_of_lqd", ascending=False).to_dict("records")
    ]
    cells = " and ".join(f"{exported[name].certificate.cells:,}" for name in SLOTS_MODELS)
    return Table.of_rows(
        "Bursts in slots: packets sent",
        rows,
        f"{compared['runs'].iloc[0]} held-out runs, 95 % intervals; alphas send most on the training runs",
        f"the C of both predictors decides as they do on every input, proven on {cells} cells",
    )


def demo(config: DemoConfig, run_dir: Path) -> DemoResult:
    """Run every step; what the store already has is not made again."""
    for setting, overrides in (("sent", config.sent), ("labels", config.labels)):
        compose_training(config, overrides, setting)  # a mistake is told before anything is simulated
    steps = Steps()
    trained: dict[str, TrainResult] = {}
    exported: dict[str, ExportedPredictor] = {}
    with steps.timed("simulate bursts in slots and label every packet with the decision of LQD"):
        training, held_out = (_slots(config, seeds) for seeds in (config.split.all_seeds, config.seeds))
    with steps.timed("train trees for the packets sent, export them to C and P4, prove both"):
        settings, trained[SENT], exported[SENT] = _trained(config, training, "sent")
        registered = register(settings, trained[SENT])
        trained[SENT] = replace(trained[SENT], registered=registered)
        trained[SENT].ensemble.save(run_dir / ENSEMBLE_FILE)
        p4 = export(trained[SENT].ensemble, P4(), run_dir / "p4", NAME).certificate
    with steps.timed("train a forest on LQD's decisions for Credence, export it, compare on held-out runs"):
        _, trained[LABELS], exported[LABELS] = _trained(config, training, "labels")
        models = {name: _contender(one) for name, one in trained.items()}
        compared = compared_runs(models, held_out, training)
        _write_burst(run_dir, held_out[0], tuned(training)[0], models[SENT])
    show_early([slots_table(compared, exported)])
    with steps.timed("the same under TCP: simulate, train the forest for Credence, export and prove"):
        lqd = config.policy["lqd"]
        of_tcp = [Dataset.open(run.path) for run in collect_runs(config, config.scenario, lqd, config.split.all_seeds)]
        _, trained[TCP], exported[TCP] = _trained(config, of_tcp, "labels")
    with steps.timed("tune a threshold, compare on held-out seeds"):
        threshold, policy = _tuned_threshold(config)
        policies = {**config.policy, threshold: policy}
        flows = evaluate_policies(config, config.scenario, policies, config.seeds, exported[TCP], (threshold,))
        flows = with_figures(track_flows(config, flows), run_dir)
    referee: PolicyRun | None = None
    if config.referee == "ns3":
        with steps.timed("one run again in ns-3"):
            in_ns3 = replace(config, network=Ns3Network())
            referee = evaluate_policies(in_ns3, config.scenario, {"lqd": lqd}, config.seeds[:1]).runs[0]
    best = str(tuned(training)[0])
    result = DemoResult(run_dir, trained, exported, p4, best, compared, flows, threshold, referee, steps.seconds)
    on_page_alone(result.tables()[2:])
    return result


def _slots(config: DemoConfig, seeds: Sequence[int]) -> list[Dataset]:
    """Labelled runs of the bursts."""
    collect = compose_settings(CollectConfig, ["source=slotted"], "slotted")
    collect = replace(collect, store_dir=config.store_dir, jobs=config.jobs)
    runs = made_runs(replace(collect, slotted=config.slotted, seeds=list(seeds)))
    return [Dataset.open(run.path) for run in runs]


def _trained(
    config: DemoConfig, runs: Sequence[Dataset], setting: str
) -> tuple[TrainConfig, TrainResult, ExportedPredictor]:
    """Return the settings of a training on runs, its predictor and the C of it."""
    sides = [f"split.{role}=[{','.join(map(str, seeds))}]" for role, seeds in config.split.roles.items()]
    given = [f"datasets=[{','.join(str(run.path) for run in runs)}]", *sides, *getattr(config, setting)]
    training = compose_training(config, given, setting)
    trained = train_model(training)
    return training, trained, export_to_store(trained.ensemble, Store(config.store_dir))


def _contender(trained: TrainResult) -> Contender:
    decider = decider_of(trained.ensemble)
    return decider.policy, None, decider.scorer


def _tuned_threshold(config: DemoConfig) -> tuple[str, Policy]:
    """Return the name and the settings of Dynamic Thresholds whose alpha costs least on the training seeds."""
    tried = compose_settings(
        EvaluateConfig, [f"policy=[{','.join(f'{{name: dt, alpha: {alpha:g}}}' for alpha in config.alphas)}]"], "alphas"
    ).policy
    runs = evaluate_policies(config, config.scenario, tried, config.split.roles["train"])
    costs = {name: cost.mean for name, cost in runs.means("cost").items() if cost.mean is not None}
    best = min(costs, key=lambda name: costs[name])
    return best, tried[best]


def _write_burst(run_dir: Path, run: Dataset, threshold: Baseline, trees: Contender) -> None:
    """Draw the first arrivals of a run under the best tuned threshold, the trees and LQD."""
    import pandas as pd

    arrivals = next(iter(run.arrivals()))
    contenders: dict[str, Contender] = {str(threshold): threshold.contender, SENT: trees, LQD: ("lqd", None, None)}
    of_buffer = 100 * run.manifest.cell_bytes / run.manifest.switches[0].buffer_bytes
    place = [feature.name for feature in FEATURES].index("occupancy")
    parts = []
    for name, (policy, parameters, scorer) in contenders.items():
        replay = replay_of(policy, run.manifest, features=True, parameters=parameters, scorer=scorer)
        seen = replay.feed(arrivals)
        lost = np.cumsum(seen["lqd_drop"] if name == LQD else seen["outcome"] != Outcome.ACCEPTED)
        columns = {"slot": arrivals["time_ns"] // SLOT_NS, "buffer_percent": of_buffer * seen["features"][:, place]}
        parts.append(pd.DataFrame({"policy": name, **columns, "lost": lost}))
    numbers = pd.concat(parts, ignore_index=True)
    figure = _burst(numbers)
    files = {f"{BURST_FIGURE}.{kind}": figure for kind in FIGURE_KINDS}
    write_files(run_dir, {f"{BURST_FIGURE}.parquet": numbers, **files})


@styled
def _burst(numbers: pd.DataFrame) -> Figure:
    figure, (left, right) = panels(2, inches=(9, 3.2))
    by_policy = dict(iter(numbers.groupby("policy", sort=False)))
    of_lqd = by_policy[LQD]["lost"].to_numpy()
    for name, rows in by_policy.items():
        near = rows[rows["slot"] > rows["slot"].iloc[-1] - NEAR_SLOTS]
        left.plot(near["slot"], near["buffer_percent"], label=str(name))
        right.plot(rows["slot"], rows["lost"].to_numpy() - of_lqd, label=str(name))
    left.set(xlabel="slot", ylabel="buffer in use, %")
    right.set(xlabel="slot", ylabel="packets lost beyond LQD's")
    return with_legend(figure, left)
