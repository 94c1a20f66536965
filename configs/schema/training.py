"""Training: features, predictors, splits, labels, the operating point."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.fields import setting


@dataclass
class FeatureSelection:
    """Which features a predictor sees."""

    names: list[str] = setting(MISSING, "names from foretail.features.catalog, in the predictor's order")
    own_queues: bool = setting(
        False, "train real features on LQD's own queues as the paper did, instead of a shadow Credence's"
    )


PREDICTORS = ("random_forest", "extra_trees", "boosted_trees", "logistic_regression", "mlp", "sequence")


@dataclass
class Predictor:
    """What is trained; the class that it names declares and checks the ranges of its other settings."""

    name: str = setting(MISSING, "kind of predictor", one_of=PREDICTORS)


@dataclass
class RandomForest(Predictor):
    """A random forest, as in the paper: ``foretail.models.drop.forest.RandomForest``."""

    trees: int = setting(4, "number of trees")
    depth: int = setting(4, "largest depth of a tree: comparisons that a packet costs per tree")
    min_leaf_rows: int = setting(1, "fewest training rows in a leaf")
    features_per_split: int | None = setting(None, "features tried at each split; null: square root of their number")
    bootstrap: bool = setting(True, "every tree sees its own draw of the rows")
    seed: int = setting(1, "same seed and rows, same forest")


@dataclass
class ExtraTrees(RandomForest):
    """Extremely randomised trees: ``foretail.models.drop.forest.ExtraTrees``."""

    bootstrap: bool = setting(False, "every tree sees its own draw of the rows")


@dataclass
class BoostedTrees(Predictor):
    """XGBoost: ``foretail.models.drop.boosted.BoostedTrees``."""

    mode: str = setting("boosted", "boosted: one tree after the other; forest: all at once")
    trees: int = setting(4, "number of trees, in either mode")
    depth: int = setting(4, "largest depth of a tree: comparisons that a packet costs per tree")
    learning_rate: float = setting(0.3, "what of a tree counts")
    min_child_weight: float = setting(1.0, "fewest p (1 - p), summed over the weighted rows of a leaf")
    l2: float = setting(1.0, "penalty on the squares of leaf values")
    subsample: float = setting(1.0, "share of the rows that a tree sees")
    feature_share: float = setting(1.0, "share of the features that are tried at each split")
    bins: int = setting(4096, "values of a feature among which cuts are sought")
    seed: int = setting(1, "same seed, rows, threads and device, same trees")


@dataclass
class LogisticRegression(Predictor):
    """One linear score, to compare with: ``foretail.models.drop.logistic.LogisticRegression``."""

    l2: float = setting(1.0, "penalty on the squares of the coefficients")
    iterations: int = setting(1000, "most iterations of its solver")


@dataclass
class MultilayerPerceptron(Predictor):
    """A neural network: ``foretail.models.drop.neural.MultilayerPerceptron``."""

    layers: int = setting(2, "hidden layers")
    width: int = setting(64, "units of a hidden layer")
    steps: int = setting(4000, "batches to learn from")
    batch_rows: int = setting(1024, "rows of a batch, half of them drops")
    learning_rate: float = setting(0.01, "of Adam at the start; it falls to 0 along a half cosine")
    seed: int = setting(1, "same seed, rows, threads and device, same network")


@dataclass
class SequenceNetwork(Predictor):
    """A network over the last arrivals of a switch, a ceiling: ``foretail.models.drop.neural.SequenceNetwork``."""

    width: int = setting(48, "units of a layer")
    rounds: int = setting(60, "most rounds of training")
    round_steps: int = setting(100, "batches of a round")
    patience: int = setting(2, "rounds without a better training loss before the learning rate is halved")
    batch_rows: int = setting(512, "rows of a batch, half of them drops")
    learning_rate: float = setting(0.003, "of Adam at the start")
    seed: int = setting(1, "same seed, rows, threads and device, same network")


@dataclass
class Trainer:
    """What a predictor is trained on."""

    device: str = setting("cpu", "where XGBoost and PyTorch train", one_of=("cpu", "cuda"))
    jobs: int = setting(1, "threads that train", at_least=1, at_most=1024)


@dataclass
class Window:
    """Arrivals of the same switch that a predictor sees beside this one: a study of ceilings, nothing to export."""

    behind: int | None = setting(None, "arrivals before; null: 15 for sequence, else none", at_least=0, at_most=4095)
    ahead: int = setting(0, "arrivals after, which nobody can know: an upper bound", at_least=0, at_most=4095)


@dataclass
class Split:
    """Which rows train, validate and test: whole runs, or stretches of time with a gap. Never random rows."""

    name: str = setting(MISSING, "kind of split", one_of=("by_run", "drawn", "by_time"))
    train: list[int] = setting([], "by_run: seeds of the runs to train on", at_least=1, at_most=2**31 - 1)
    validation: list[int] = setting(
        [], "by_run: seeds of the runs on which the operating point is chosen", at_least=1, at_most=2**31 - 1
    )
    test: list[int] = setting(
        [], "by_run: seeds of the runs on which the scores are computed", at_least=1, at_most=2**31 - 1
    )
    seeds: list[int] = setting(
        [], "by_time: seeds of the runs to cut in three; drawn: of the runs to draw from", at_least=1, at_most=2**31 - 1
    )
    validation_fraction: float = setting(
        0.2, "by_time: share of a run's time that validates; drawn: of the runs", above=0, at_most=1
    )
    test_fraction: float = setting(
        0.2, "by_time: share of a run's time that tests; drawn: of the runs", above=0, at_most=1
    )
    seed: int = setting(1, "drawn: of the draw", at_least=0, at_most=2**32 - 1)
    gap_ns: int = setting(1_000_000, "by_time: time left out between two stretches", at_least=1)


@dataclass
class Sampling:
    """Which training rows are read: every drop and all of the asked region, and a share of the others, weighted."""

    others: float = setting(1.0, "share of the others; smaller saves memory and time", above=0, at_most=1)
    seed: int = setting(1, "of the draw", at_least=0, at_most=2**32 - 1)


@dataclass
class OperatingPoint:
    """The probability threshold, chosen on the validation split."""

    region: str = setting("asked", "rows that count: where Credence asks, or all", one_of=("asked", "whole"))
    maximise: str = setting("f1", "F1, or the recovered loss of replays", one_of=("f1", "recovered_loss"))


@dataclass
class Objective:
    """What is learned: the labels alone, or also which of its mistakes lose packets."""

    name: str = setting(
        "labels",
        "labels: every row alike; recovered_loss: train again with more weight on rows whose mistakes cost throughput",
        one_of=("labels", "recovered_loss"),
    )
    rounds: int = setting(4, "recovered_loss: trainings, the best on validation runs is kept", at_least=2, at_most=100)
    window_ns: int = setting(
        200_000, "recovered_loss: the loss in so much time is shared by the mistakes made in it", at_least=1
    )


@dataclass
class Labels:
    """Which of the equally true labels of LQD train; thresholds and scores always go by those of the datasets."""

    rule: str | None = setting(
        None,
        "victims by another rule, found by replay; null: the rule of the datasets, scenario.rules.victim",
        one_of=("tail", "tail_kept", "head", "random"),
    )
    reassign: int = setting(
        0,
        "train again so often on drops moved to the packets with the highest scores; the best on validation is kept",
        at_least=0,
        at_most=100,
    )


@dataclass
class FeatureBudget:
    """Most that the selected features may take beyond Credence on one switch; null is no limit."""

    features: int | None = setting(None, "number of features", at_least=1)
    register_bits: int | None = setting(None, "bits of state", at_least=0)
    operations: int | None = setting(None, "operations per packet", at_least=0)


@dataclass
class Student:
    """A random forest that imitates a network: its size is the budget."""

    trees: int = setting(4, "number of trees", at_least=1, at_most=4096)
    depth: int = setting(4, "largest depth of a tree: comparisons that a packet costs per tree", at_least=1, at_most=32)
    leaves: int | None = setting(None, "most leaves of all trees together; null: as many as depth allows", at_least=2)
    seed: int = setting(1, "same seed, teacher and rows, same trees", at_least=0, at_most=2**32 - 1)
