"""
What does a policy cost when senders react?
===========================================

Under congestion control, a drop slows its sender down. So packets sent do not tell what a policy is worth. This program
runs the same flows under four policies in a simulated network, and compares their cost J.
"""

# %%
# **A network.** There are two racks with four servers each. Senders use TCP. Each server often asks four others, whose
# answers come together and form an incast.
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from foretail.api import Policy, cost_of_run, driver_config, run_native, scenarios

scenario = scenarios.Scenario(
    name="two racks",
    topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    background=scenarios.Background(size_bytes=[0, 10_000, 100_000, 1_000_000], cumulative=[0, 0.4, 0.9, 1], load=0.6),
    incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    traffic_ns=3_000_000,
)


def cost(policy: Policy, seed: int) -> float:
    """Return J of one run, the geometric mean of the mean slowdowns of queries, short flows and long flows."""
    with TemporaryDirectory() as folder:
        settings = driver_config(scenario, policy, seed, trace=False)
        run = run_native(settings, Path(folder))
        return cost_of_run(run.flows(), run.summary["end_ns"], settings)


# %%
# **Policies.** Seeds 1 to 3 choose the alpha of Dynamic Thresholds (DT). Other seeds judge. All policies meet the same
# flows, so each run is compared with LQD on the same seed.
ALPHAS, TUNING, TEST = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), range(1, 4), range(11, 21)
mean_log_costs = [np.mean([np.log(cost(Policy(name="dt", alpha=one), seed)) for seed in TUNING]) for one in ALPHAS]
alpha = ALPHAS[int(np.argmin(mean_log_costs))]
policies = {
    f"DT, alpha {alpha:g}, tuned": Policy(name="dt", alpha=alpha),
    "FollowLQD": Policy(name="followlqd"),
    "Complete Sharing": Policy(name="cs"),
    "DT, alpha 0.5, default": Policy(name="dt", alpha=0.5),
}
lqd = np.array([cost(Policy(name="lqd"), seed) for seed in TEST])
ratios = np.array([[cost(policy, seed) for seed in TEST] for policy in policies.values()]) / lqd
logs = np.log(ratios)
half = stats.t.ppf(0.975, len(TEST) - 1) * stats.sem(logs, axis=1)
means, low, high = (np.exp(logs.mean(axis=1) + shift) for shift in (0, -half, half))
for name, *interval in zip(policies, means, low, high, strict=True):
    print("{}: {:.2f} times the cost of LQD, 95 % interval [{:.2f}, {:.2f}]".format(name, *interval))

# %%
# A dot is one seed. A bar is the 95 % interval of the mean over seeds (Student's t, of logarithms). If a bar reaches
# over 1, ten seeds cannot tell the policy from LQD.
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
place = np.arange(len(policies))
axes.plot(ratios, place + 0.2, ".", color="0.6")
axes.errorbar(means, place, xerr=(means - low, high - means), fmt="s", capsize=4)
axes.axvline(1, color="black", linewidth=0.8)
axes.set_xscale("log", base=2)
axes.set(yticks=place, yticklabels=list(policies), xlabel="cost J over that of LQD")
axes.xaxis.set_major_formatter("{x:g}")
axes.invert_yaxis()
plt.show()
