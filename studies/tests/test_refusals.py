"""Settings of experiments that make no sense get one sentence, before anything runs."""

from __future__ import annotations

import re

import pytest

from foretail.core.errors import ForetailError
from tests.composed import experiment_settings

REFUSED = {
    "credence_fig14": [
        ("workloads=[nobody]", "workloads = nobody is unknown"),
        ("seeds=[]", "seeds is empty"),
        ("seeds=[1,1]", "seeds holds 1 twice"),
        ("flip_probabilities=[1.5]", "at most 1"),
        ("policies=[dt]", "lacks credence"),
        ("parameters.alpha=[0.5,1]", "several queues, but generated arrivals have one"),
    ],
    "drop_costs": [
        ("policies=[lqd_head]", "names lqd_head, which pushes out: name one that decides arrivals"),
        ("columns=[incast]", "names incast, which no switch has"),
        ("columns=[queue_average]", "names queue_average, an average over a time that networks"),
        ("validation_seeds=[111]", "validation_seeds holds 111, a labelled run"),
        ("network=ns3", "network=ns3 has no branches, which measure what drops cost: use network=native"),
    ],
    "loss_recovery_prediction": [
        ("feature_names=[threshold,queue_average]", "queue_average, which is not the same in all networks: leave it"),
        ("feature_names=[threshold,threshold]", "feature_names names threshold twice"),
        ("~policies.dt", "policies lacks dt, which stands beside the model: add dt"),
        ("seeds=[301]", "seeds holds 301, on which the forest learns: judge on other seeds"),
    ],
    "online_optimum": [("ports=[9]", "ports")],
    "prediction_errors": [
        ("switches=['3']", "switches = 3 is no switch"),
        ("switches=['3x2']", "a packet of buffer for each"),
        ("switches=['9x9']", "do not fit 64 bits"),
    ],
    "prediction_map": [
        ("test_seeds=[1,3]", "judge on other seeds"),
        ("+bases.recorded={workload: uniform, ports: 4, buffer_per_port: 4}", "bases.recorded has the name"),
        ("axes.bursts.least_bytes=[1024]", "least_bytes is 1024"),
        ('+recorded.web=["scenario=nowhere"]', "recorded.web"),
        ('+recorded.web=["source=slotted"]', "recorded.web has source=slotted: record a scenario"),
        ("+bases.new={workload: uniform, ports: 4}", "bases.new has no buffer_per_port"),
        ("+axes.nobody={load: [0.1]}", "axes has nobody"),
        ("axes.incast={fan_in: [99]}", "fan_in must be at most"),
        ("+axes.incast.fans=[1]", "fans"),
    ],
    "promise": [
        ("train_on=[nothing]", "train_on names nothing, which is not among incast_5, on_off_90"),
        ("train_on=[]", "train_on is empty: give at least one value"),
        ("under=[dt]", "under names dt, which asks no predictor: choose from "),
        ("unseen_draw=1", "training_draw and unseen_draw are both 1, so the same workloads would train and judge"),
        ("split={name: by_time}", "split is by_time, and promise holds whole runs out: use by_run"),
    ],
    "referees": [("networks=[ns3]", "networks lacks native, with which the others are compared: add it")],
    "rule_by_ppo": [("observed=[queue]", "observed holds queue, which has more than 8 bits")],
    "sharing_rule": [
        ("ranges.fill=[200,256]", "ranges.fill = [200, 256]: give two values in order, from 0"),
        ("ranges.pressure=[9,8]", "ranges.pressure = [9, 8]: give two values in order"),
        ("+ranges.queue=[1,2]", "ranges.queue is unknown: choose from message_left"),
        ("first_numbers=[{fill: 200}]", "first_numbers[0] needs"),
    ],
    "systems": [("systems=[sirius2]", "systems")],
    "tradeoff": [
        ("flip_probabilities=[0,0.5]", "lacks 0 or 1"),
        ("models=[b,b]", "names b twice"),
        ("+workloads.new={workload: nobody}", "nobody is unknown"),
        ("+workloads.new={load: 3}", "names no workload"),
    ],
}


@pytest.mark.parametrize(
    ("experiment", "override", "sentence"), [(name, *row) for name, rows in REFUSED.items() for row in rows]
)
def test_settings_that_make_no_sense_are_refused(experiment: str, override: str, sentence: str) -> None:
    with pytest.raises(ForetailError, match=re.escape(sentence)) as refused:
        experiment_settings(experiment, "size=small", override)
    assert "\n" not in str(refused.value)
