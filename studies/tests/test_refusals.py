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
        ("validation_seeds=[111]", "seed 111 is among validation_seeds and seeds"),
        ("network=ns3", "network=ns3 has no branches, which measure what drops cost: use network=native"),
    ],
    "loss_recovery_prediction": [
        ("feature_names=[threshold,queue_average]", "queue_average, which is not the same in all networks: leave it"),
        ("feature_names=[threshold,threshold]", "feature_names names threshold twice"),
        ("~policies.dt", "policies lacks dt, which stands beside the model: add dt"),
        ("seeds=[301]", "seed 301 is among seeds and training_seeds"),
    ],
    "prediction_map": [
        ("test_seeds=[1,3]", "among train_seeds and test_seeds"),
        ("+bases.recorded={workload:uniform,ports:4,buffer_per_port:4}", "bases.recorded has the name"),
        ("axes.bursts.least_bytes=[1024]", "least_bytes is 1024"),
        ('+recorded.web=["scenario=nowhere"]', "recorded.web"),
        ('+recorded.web=["source=slotted"]', "recorded.web has source=slotted: record a scenario"),
        ("+bases.new={workload:uniform,ports:4}", "bases.new has no buffer_per_port"),
        ("+axes.nobody={load:[0.1]}", "axes has nobody"),
        ("axes.incast={fan_in:[99]}", "fan_in must be at most"),
        ("+axes.incast.fans=[1]", "fans"),
    ],
    "promise": [
        ("train_on=[nothing]", "train_on names nothing, which is not among incast_5, on_off_90"),
        ("train_on=[]", "train_on is empty: give at least one value"),
        ("under=[dt]", "under names dt, which asks no predictor: choose from "),
        ("unseen_draw=1", "training_draw and unseen_draw are both 1, so the same workloads would train and judge"),
        ("split={name:by_time}", "split is by_time, and promise holds whole runs out: use by_run"),
    ],
    "referees": [("networks=[ns3]", "networks lacks native, with which the others are compared: add it")],
    "reverie_a": [
        ("compare=[{against:[fifo],metrics:[cost]}]", "names fifo, which is not among variants: add it there"),
        ("compare=[{along:way,against:[sonic],metrics:[cost]}]", "names sonic, which is not among ways"),
        ("compare=[{against:[sonic],metrics:[colour]}]", "metrics lacks colour, which is compared"),
        ("least=[colour]", "metrics lacks colour, which is compared: add it with its title"),
    ],
    "rule_by_ppo": [("observed=[queue]", "observed holds queue, which has more than 8 bits")],
    "sharing_rule": [
        ("ranges.fill=[200,256]", "ranges.fill = [200, 256]: give two values in order, from 0"),
        ("ranges.pressure=[9,8]", "ranges.pressure = [9, 8]: give two values in order"),
        ("+ranges.queue=[1,2]", "ranges.queue is unknown: choose from message_left"),
        ("first_numbers=[{fill:200}]", "first_numbers[0] needs"),
    ],
    "systems": [("systems=[sirius2]", "systems")],
    "benchmark": [
        ("tracking=off +sharing_rules.mine={fill:300}", "sharing_rules.mine is not a sharing rule"),
    ],
    "credence_fig6": [
        ("policies=[dt]", "lacks lqd"),
        ("policies=[lqd,credence]", "names credence, which asks a model"),
        ("asking=[guarded]", "asking = guarded: give credence, and beside it any of guarded, learned"),
        ("asking=[credence,lqd]", "asking = credence, lqd: give credence"),
        ("asking=[credence,credence]", "asking names credence twice"),
        ("seeds=[1,101]", "share seed 1"),
        ("split.name=by_time", "use by_run"),
    ],
    "etalon": [
        ("destination_racks=[4]", "has flows of rack 4, and fabric.racks = 3"),
        ("policies=[lqd]", "policies and shared_packets go together"),
        ("policies=[abm]", "policies = abm is unknown"),
        ("model=x", "model and train are for the policy credence, which does not run"),
        ("fabric.hosts_per_rack=129", "hosts_per_rack = 129 is out of range"),
        ("static_packets=[0]", "static_packets = 0 is out of range"),
        ("min_rto_ns=61000000000", "min_rto_ns = 61000000000 is out of range"),
        ("emulation.control=dctcp", "is dctcp, and switches of racks do not mark"),
        ("weeks=3", "leaves none to count"),
        ("fabric.night_ns=180001", "night_ns = 180001 is longer than"),
        ("ns3_prefix=x", "ns3_prefix names an ns-3, which nothing here uses"),
        ("ns3_weeks=3", "ns3_weeks = 3 leaves none to count"),
        ("static_packets=[] ahead_ns=[]", "compares nothing: give"),
        ("fabric.hosts_per_rack=100 destination_racks=[2,3]", "has 300 hosts, and a process each"),
    ],
    "message_end": [("validation_seeds=[701]", "seed 701 is among validation_seeds and")],
    "sharing_map": [
        ("policies.dt.alpha=[0]", "policies.dt.alpha = 0.0 is out of range: it must be above 0"),
        ("+policies.dt.first_rtt_alpha=[1]", "dt has first_rtt_alpha, which it does not heed"),
        ("+policies.cs.alpha=[1]", "cs has alpha, which it does not heed: cs has none"),
        ("policies.dt.alpha=[1,1]", "holds 1.0 twice"),
        ("policies.dt.alpha=[]", "policies.dt.alpha is empty: give at least one value"),
        ("+policies.reverie={low_pass_ns:[2.5]}", "low_pass_ns = [2.5] has a fraction: give whole numbers"),
        ("+policies.credence={}", "names credence, which asks a model: give model=..."),
        ("+policies.best={}", "best is unknown: choose from"),
        ("~policies.lqd", "policies lacks lqd, to which all are compared"),
        ("families.websearch.held_out=true", "has none with held_out=false, on which settings are chosen"),
        ("families.loss_based.held_out=false", "has none with held_out=true, which judge the settings"),
        ("~families.loss_based.conditions.bytes_1280", "loss_based.conditions is empty: name at least one"),
        ("most_seeds=1", "most_seeds = 1 is less than the 2 seeds: raise it"),
    ],
    "vermilion_fig8_5": [
        ("designs.vlb.routing=hot_potato", "designs.vlb.routing = hot_potato is unknown"),
        (
            "flow_sizes.size_bytes=[0,20_000,2_000_000] flow_sizes.cumulative=[0,0.9,0.5]",
            "flow_sizes.cumulative is not monotone",
        ),
    ],
    "vermilion_fig9_5": [
        ("deviations=[1,1]", "deviations holds 1.0 twice: every value makes points of its own"),
        ("deviations=[-1]", "deviations = -1.0 is out of range"),
        ("uniform_from=[11]", "uniform_from = 11 is more than k = 10: choose at most k"),
    ],
}


@pytest.mark.parametrize(
    ("experiment", "overrides", "sentence"), [(name, *row) for name, rows in REFUSED.items() for row in rows]
)
def test_settings_that_make_no_sense_are_refused(experiment: str, overrides: str, sentence: str) -> None:
    with pytest.raises(ForetailError, match=re.escape(sentence)):
        experiment_settings(experiment, "size=small", *overrides.split())
