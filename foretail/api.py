"""Names that programs use, by one import: ``from foretail.api import Dataset, RandomForest, export``.

``scenarios`` and ``workloads`` are modules with what describes traffic, ``zoo`` is one with rules. Networks are in
``foretail.models.drop.neural``, because they need the extra ``nn``.
"""

from foretail.configs.schema import scenario as scenarios
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.training import Objective
from foretail.core.settings import setting
from foretail.export.c.build import PredictorLibrary
from foretail.export.c.target import C
from foretail.export.p4.target import P4
from foretail.export.schedule import PlannedSchedule, render_schedule
from foretail.export.target import export
from foretail.features.catalog import FEATURE_GROUPS, FEATURES, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, Run, SwitchGeometry
from foretail.features.demand.matrix import DemandMatrix, DemandSequence
from foretail.features.rows.labelled_rows import Rows, read_rows
from foretail.features.rows.splits import split_by_seed
from foretail.models import zoo
from foretail.models.demand.averages import LastValue, Seasonal
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.forest import ExtraTrees, RandomForest
from foretail.models.drop.predictor import DropPredictor, TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_estimator
from foretail.models.estimator import DropClassifier
from foretail.models.mlflow.store import use_tracking
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.pipelines.comparison.choosing import choose, judge, open_runs
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.training.sending import train_for_sending
from foretail.sim_bridge.arrivals import workloads
from foretail.sim_bridge.arrivals.files import ArrivalFile, Slotted
from foretail.sim_bridge.circuits.demand import data_parallel, permutation, repeated, skewed_ring
from foretail.sim_bridge.circuits.schedules import Schedule, round_robin, single_hop_guarantee, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from foretail.sim_bridge.imports.pcap.log import read_captures
from foretail.sim_bridge.imports.pcap.synthetic import write_switch
from foretail.sim_bridge.native.driver import collect_dataset, run_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.open_loop.dataset import collect_slots, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import compare_replays, replay_scores
from foretail.sim_bridge.open_loop.slotted import Labelled, Predicted, compare, flipped, labelled, packets_sent
from foretail.sim_bridge.packets.cost import cost_of_run
from foretail.sim_bridge.policies import OF_ARRIVALS
from foretail.sim_bridge.policy_settings import SlotParameters

__all__ = [
    "FEATURES",
    "FEATURE_GROUPS",
    "OF_ARRIVALS",
    "P4",
    "ArrivalFile",
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
    "Labelled",
    "LastValue",
    "Objective",
    "PlannedSchedule",
    "Policy",
    "Predicted",
    "PredictorLibrary",
    "RandomForest",
    "Rows",
    "Rules",
    "Run",
    "Schedule",
    "Seasonal",
    "SlotParameters",
    "Slotted",
    "SwitchGeometry",
    "TreePredictor",
    "choose",
    "choose_operating_point",
    "collect_dataset",
    "collect_slots",
    "compare",
    "compare_replays",
    "cost_of_run",
    "data_parallel",
    "driver_config",
    "export",
    "flipped",
    "from_estimator",
    "judge",
    "labelled",
    "multi_hop",
    "open_runs",
    "packets_sent",
    "permutation",
    "read_captures",
    "read_rows",
    "render_schedule",
    "repeated",
    "replay_scores",
    "round_robin",
    "run_driver",
    "run_native",
    "scenarios",
    "setting",
    "single_hop",
    "single_hop_guarantee",
    "skewed_ring",
    "split_by_seed",
    "train_for_sending",
    "training_columns",
    "use_tracking",
    "vermilion",
    "workloads",
    "write_open_loop_dataset",
    "write_switch",
    "zoo",
]
