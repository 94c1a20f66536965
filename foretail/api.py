"""Names that programs use, by one import: ``from foretail.api import Dataset, RandomForest, export``.

``scenarios`` and ``workloads`` are modules with what describes traffic. Networks are in
``foretail.models.drop.neural``, because they need the extra ``nn``.
"""

from foretail.configs.schema import scenario as scenarios
from foretail.configs.schema.policies import Policy
from foretail.export.c.target import C
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.matrix import DemandMatrix, DemandSequence
from foretail.features.rows.labelled_rows import Rows, read_rows
from foretail.features.rows.splits import split_by_seed
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.forest import ExtraTrees, RandomForest
from foretail.models.drop.predictor import DropPredictor, TreePredictor, parameter
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_estimator
from foretail.models.estimator import DropClassifier
from foretail.models.mlflow.store import use_tracking
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.pipelines.comparison.judging import judge, open_runs
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.reporting.figures import run_figures
from foretail.sim_bridge.arrivals import workloads
from foretail.sim_bridge.circuits.schedules import Schedule, vermilion
from foretail.sim_bridge.native.driver import collect_dataset, run_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.open_loop.dataset import collect_slots
from foretail.sim_bridge.open_loop.replay import compare_replays, replay_scores
from foretail.sim_bridge.open_loop.slotted import compare
from foretail.sim_bridge.policy_settings import SlotParameters

__all__ = [
    "P4",
    "BoostedTrees",
    "C",
    "Confusion",
    "Dataset",
    "DemandMatrix",
    "DemandSequence",
    "DropClassifier",
    "DropPredictor",
    "Ensemble",
    "ExtraTrees",
    "FeatureInput",
    "Policy",
    "RandomForest",
    "Rows",
    "Schedule",
    "SlotParameters",
    "TreePredictor",
    "choose_operating_point",
    "collect_dataset",
    "collect_slots",
    "compare",
    "compare_replays",
    "driver_config",
    "export",
    "from_estimator",
    "judge",
    "open_runs",
    "parameter",
    "read_rows",
    "replay_scores",
    "run_driver",
    "run_figures",
    "run_native",
    "scenarios",
    "split_by_seed",
    "training_columns",
    "use_tracking",
    "vermilion",
    "workloads",
]
