"""
Which packets does LQD drop, and what does a copy of it send?
=============================================================

A packet arrives. The switch knows how long its queue is and how much of the buffer is free. The picture shows which
packets LQD drops, where a decision tree puts its threshold, and where the best tuned threshold lies. The table has what
a switch sends with each of them.
"""

# %%
# **Packets with labels.** ``collect_slots`` generates traffic, runs LQD on it and labels each packet. The features are
# those of a switch that knows the labels. Lengths are in cells of 256 bytes, and a packet has four of them.
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
from sklearn.tree import DecisionTreeClassifier

from foretail.api import collect_slots, judge, workloads

PORTS, BUFFER, CELLS = 20, 1000, 4
traffic = workloads.Incast(load=0.15, fan_in=5, background_load=0.8)
folder = mkdtemp()
run, *held_out = (
    collect_slots(f"{folder}/{seed}", traffic, ports=PORTS, buffer_per_port=BUFFER // PORTS, slots=5000, seed=seed)
    for seed in (1, 2, 3)
)
packets = run.frame(["shadow_queue", "shadow_occupancy", "lqd_drop"])
features, drop = packets[["shadow_queue", "shadow_occupancy"]].to_numpy(), packets["lqd_drop"].to_numpy()
print(f"{len(packets):,} packets, of which LQD drops {drop.sum():,}")

# %%
# **A tree and thresholds.** The tree learns the labels of seed 1. The settings of Dynamic Thresholds (DT) and of other
# policies are those that send most on seed 1. Seeds 2 and 3 judge all of them. The tree decides in the switch, so that
# its answers make the queues that it sees.
tree = DecisionTreeClassifier(max_depth=3, random_state=1).fit(features, drop)
table = judge(tree, held_out, tuned_on=run, features=["queue", "occupancy"])
print(table[["who", "sent_percent_of_lqd", "recovered_loss"]].round(2).to_string(index=False))

# %%
# DT refuses packets below its line, the tree those on the right of its own. LQD drops packets of long queues when the
# buffer is nearly full. The tree finds this corner. But LQD can push out packets later, and the switch with the tree
# cannot. DT also refuses packets of shorter queues while some buffer is free, and keeps this room for other ports. So
# it sends more than the copy of LQD.
edges = [np.arange(0, 501, 20), np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000])]
queue, free = features[:, 0] // CELLS, BUFFER - features[:, 1] // CELLS
arrived, dropped = (np.histogram2d(queue, free, edges, weights=weights)[0] for weights in (None, drop))
share = np.divide(dropped, arrived, out=np.full(arrived.shape, np.nan), where=arrived > 0)
queues, free_buffers = np.meshgrid(np.arange(501), np.arange(BUFFER + 1))
predicted = tree.predict(np.stack([CELLS * queues.ravel(), CELLS * (BUFFER - free_buffers.ravel())], axis=1))
alpha = float(next(who for who in table["who"] if who.startswith("DT")).split()[-1])

figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
colours = axes.pcolormesh(*edges, share.T, cmap="Blues", vmin=0, vmax=1)
figure.colorbar(colours, label="share of packets that LQD drops")
axes.contour(queues, free_buffers, predicted.reshape(queues.shape), levels=[0.5], colors="C3")
axes.plot([], [], "C3", label="threshold of the tree")
axes.plot(edges[0], edges[0] / alpha, "k--", label=f"threshold of DT, alpha {alpha:g}")
axes.set_yscale("symlog", linthresh=1)
axes.set(xlabel="queue (packets)", ylabel="free buffer (packets)")
axes.legend(loc="upper left")
plt.show()
