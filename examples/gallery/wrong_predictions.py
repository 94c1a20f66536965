"""
How many wrong predictions does Credence bear?
==============================================

Credence drops what a predictor names. With perfect predictions it sends what LQD sends. This program inverts a share of
the predictions, and compares Credence with two policies that need no predictor.
"""

# %%
# **Traffic.** Incasts over steady background packets arrive at a switch with 20 ports. Seeds 1 and 2 choose the alpha
# of Dynamic Thresholds (DT), and seeds 11 to 15 judge.
import matplotlib.pyplot as plt
import numpy as np

from foretail.api import SlotParameters, compare, flipped, packets_sent, workloads

PORTS, BUFFER, SLOTS = 20, 1000, 5000
ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
TUNING, TEST = (1, 2), (11, 12, 13, 14, 15)
traffic = workloads.Incast(load=0.15, fan_in=5, background_load=0.8)
settings = [("dt", SlotParameters(alpha=[alpha])) for alpha in ALPHAS]
sent_by_alpha = sum(
    np.array(packets_sent(traffic.batches(PORTS, BUFFER, SLOTS, seed), PORTS, BUFFER, settings)) for seed in TUNING
)
alpha = ALPHAS[int(np.argmax(sent_by_alpha))]
print(f"DT sends most with alpha {alpha:g}")

# %%
# **Wrong predictions.** ``flipped(p, seed)`` predicts what LQD does, inverted with probability p for each packet.
PROBABILITIES = (0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
POLICIES = {"credence": "Credence", "followlqd": "FollowLQD", "dt": f"DT, alpha {alpha:g}"}
sent = np.empty((len(POLICIES), len(PROBABILITIES), len(TEST)))  # in % of LQD
for place, probability in enumerate(PROBABILITIES):
    for run, seed in enumerate(TEST):
        packets = traffic.batches(PORTS, BUFFER, SLOTS, seed)
        predictions, parameters = flipped(probability, seed), SlotParameters(alpha=[alpha])
        result = compare(packets, PORTS, BUFFER, list(POLICIES), predictions, parameters=parameters)
        sent[:, place, run] = [100 * result.transmitted[policy] / result.lqd for policy in POLICIES]
for probability, (credence, followlqd, dt) in zip(PROBABILITIES, sent.mean(axis=2).T, strict=True):
    print(f"{probability:7.2%} inverted: Credence {credence:.2f}, FollowLQD {followlqd:.2f}, DT {dt:.2f} % of LQD")

# %%
# Credence is consistent: with right predictions it sends what LQD sends. It is also robust: with all predictions wrong
# it still sends a part, because its safeguard accepts packets while all queues are short. In between, tuned DT send
# more as soon as a few packets in a thousand are predicted wrong. Lines are means over five seeds, and bands reach from
# the lowest to the highest seed.
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for title, marker, of_seeds in zip(POLICIES.values(), "os^", sent, strict=True):
    (line,) = axes.plot(PROBABILITIES, of_seeds.mean(axis=1), marker=marker, markersize=4, label=title)
    axes.fill_between(PROBABILITIES, of_seeds.min(axis=1), of_seeds.max(axis=1), color=line.get_color(), alpha=0.2)
axes.set_xscale("symlog", linthresh=1e-3)
axes.set(xlabel="probability that a prediction is inverted", ylabel="packets sent (% of LQD)", xlim=(0, 1))
axes.legend()
plt.show()
