"""
1. A first predictor
====================

This program simulates traffic, trains two predictors of drops, and measures what each is worth.

A switch with 20 ports shares one buffer. When the buffer is full, Longest Queue Drop (LQD) pushes out packets that are
already queued. A drop-tail switch cannot do that. The first predictor imitates LQD: it answers from the features of an
arriving packet whether LQD would drop it. The second one learns what to drop so that most packets are sent. Both are
compared with the best tuned policy that needs no predictor.
"""

# %%
# **Traffic.** Each run has bursts over steady background packets, in slots, and a seed of its own. LQD labels every
# packet.
from tempfile import TemporaryDirectory

from foretail.api import collect_slots, workloads

scratch = TemporaryDirectory()
TRAIN, VALIDATION, TEST = (1, 2, 3, 4), (5, 6), (7, 8, 9, 10, 11, 12)
traffic = workloads.Incast(load=0.15, fan_in=5, background_load=0.8)
runs = {
    seed: collect_slots(f"{scratch.name}/run{seed}", traffic, ports=20, buffer_per_port=50, slots=4000, seed=seed)
    for seed in (*TRAIN, *VALIDATION, *TEST)
}
for seed in (1, 2, 3):
    print(f"{runs[seed].manifest.rows:,} packets, LQD drops {runs[seed].manifest.drops:,}")

# %%
# **Rows.** A whole run goes to one side of the split, so that training and test share no traffic. The features come
# from the catalog. This set is what a switch with a virtual LQD next to it can count.
from foretail.api import FEATURE_GROUPS, FeatureInput, read_rows, split_by_seed, training_columns

known = {feature.name: feature for feature in runs[1].manifest.features}


def inputs_of(names: tuple[str, ...]) -> list[FeatureInput]:
    """Describe features to a model: name, constants and bits."""
    return [FeatureInput(name, known[name].params, known[name].bits) for name in names]


NAMES = FEATURE_GROUPS["switch"]
print(", ".join(NAMES))
split = split_by_seed(list(runs.values()), train=TRAIN, validation=VALIDATION, test=TEST)
columns = training_columns(NAMES, own_queues=False)
train, validation = (read_rows(side, columns) for side in (split.train, split.validation))

# %%
# **A model of the labels.** It is a small forest. The validation runs choose its threshold, never the test runs.
from foretail.api import RandomForest, choose_operating_point

forest = RandomForest(trees=4, depth=4).fit(train.x, train.lqd_drop)
ensemble = forest.to_ensemble(inputs_of(NAMES))
point = choose_operating_point(ensemble, validation.x, validation.lqd_drop)
model = ensemble.with_threshold(point.threshold)
print(f"drop above a probability of {point.probability:.3f}")

# %%
# **Scores.** The test runs are new to the model. LQD drops few packets, so accuracy says little: look at F1.
from foretail.api import Confusion

test = read_rows(split.test, columns)
predicted = model.exceeds(test.x)
counts = Confusion.count(test.lqd_drop, predicted)
print(
    f"accuracy {counts.accuracy:.3f}, precision {counts.precision:.3f}, recall {counts.recall:.3f}, F1 {counts.f1:.3f}"
)

# %%
# **What it is worth.** The same packets arrive again. Now the model decides in the switch when Credence asks it. The
# number that counts is the packets sent, in % of LQD. Compare it with always accepting, and with policies that need no
# model, such as Dynamic Thresholds (DT). Their alpha is the one that sends most on the training and validation runs.
from foretail.api import judge

test_runs, others = [runs[seed] for seed in TEST], [runs[seed] for seed in (*TRAIN, *VALIDATION)]
print(judge(model, test_runs, tuned_on=others)[["who", "sent_percent_of_lqd", "recovered_loss"]].round(2).to_string())

# %%
# **A model that is worth more.** DT sends more than the forest, and needs no model. So train for the packets sent.
# First a search finds a threshold that adapts to the state of the switch. Then trees learn this threshold, also on the
# arrivals that they meet under their own decisions. They decide about every packet during the run.
from foretail.api import BoostedTrees, Objective, train_for_sending

trained = train_for_sending(
    Objective(name="sent"),
    lambda: BoostedTrees(trees=4, depth=4, learning_rate=1.0),
    split.train,
    split.validation,
    inputs_of(FEATURE_GROUPS["threshold"]),
)
worth = judge(trained.best.model, test_runs, tuned_on=others).iloc[0]
print(f"packets sent: {worth.sent_percent_of_lqd:.2f} % of LQD, recovered loss {worth.recovered_loss:.2f}")
scratch.cleanup()

# %%
# The command ``foretail train objective.name=sent features=threshold`` does the same, with a store, tracking and more
# checks. On other traffic a predictor may gain nothing (docs/reports/prediction.md). The next step uses a model of
# your own.
