"""
Which packets does LQD drop, and does a tree see them?
======================================================

A packet arrives. The switch knows how long its queue is and how much of the buffer is free. The picture shows which
packets LQD drops, where a decision tree puts its threshold, and where the best tuned threshold lies.
"""

# %%
# **Packets with labels.** ``labelled`` runs LQD on generated traffic, and gives the features and the label of each
# packet.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.tree import DecisionTreeClassifier

from foretail.api import SlotParameters, compare, workloads
from foretail.features.catalog import FEATURES
from foretail.sim_bridge.open_loop.slotted import Labelled, Predicted, labelled, packets_sent

PORTS, BUFFER, SLOTS = 20, 1000, 5000
QUEUE, OCCUPANCY = (
    next(place for place, one in enumerate(FEATURES) if one.name == name) for name in ("queue", "occupancy")
)
traffic = workloads.Incast(load=0.15, fan_in=5, background_load=0.8)


def rows(batch: Labelled) -> np.ndarray:
    """Return the queue and the free buffer that each packet meets."""
    assert batch.features is not None
    return np.stack([batch.features[:, QUEUE], BUFFER - batch.features[:, OCCUPANCY]], axis=1)


batches = list(labelled(traffic.batches(PORTS, BUFFER, SLOTS, seed=1), PORTS, BUFFER, features=True))
x, drop = np.concatenate([rows(batch) for batch in batches]), np.concatenate([batch.lqd_drop for batch in batches])
print(f"{len(x):,} packets, of which LQD drops {drop.sum():,}")

# %%
# **A tree and a threshold.** The tree learns the labels of seed 1. Dynamic Thresholds (DT) refuse a packet if its queue
# is longer than alpha times the free buffer. Their alpha is the one that sends most on seed 1. Seed 2 judges both.
tree = DecisionTreeClassifier(max_depth=3, random_state=1).fit(x, drop)
ALPHAS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
settings = [("dt", SlotParameters(alpha=[alpha])) for alpha in ALPHAS]
alpha = ALPHAS[int(np.argmax(packets_sent(traffic.batches(PORTS, BUFFER, SLOTS, seed=1), PORTS, BUFFER, settings)))]
result = compare(
    traffic.batches(PORTS, BUFFER, SLOTS, seed=2),
    PORTS,
    BUFFER,
    ("credence", "dt"),
    lambda batch: Predicted(tree.predict(rows(batch)).astype(np.uint8)),
    parameters=SlotParameters(alpha=[alpha]),
    features=True,
)
for policy, sent in result.transmitted.items():
    print(f"{policy}: {100 * sent / result.lqd:.2f} % of LQD")

# %%
# A policy refuses packets below its line. LQD drops packets of long queues when the buffer is nearly full. The tree
# finds this corner. But LQD can push out packets later, and a drop-tail policy cannot. DT refuse packets of a long
# queue earlier, and keep room for the other ports. So they send more than the copy of LQD.
edges = [np.arange(0, 501, 20), np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000])]
packets, dropped = (np.histogram2d(x[:, 0], x[:, 1], edges, weights=weights)[0] for weights in (None, drop))
share = np.divide(dropped, packets, out=np.full(packets.shape, np.nan), where=packets > 0)
queue, free = np.meshgrid(np.arange(501), np.arange(101))
says = tree.predict(np.stack([queue.ravel(), free.ravel()], axis=1)).reshape(queue.shape)

figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
colours = axes.pcolormesh(*edges, share.T, cmap="Blues", vmin=0, vmax=1)
figure.colorbar(colours, label="share of packets that LQD drops")
axes.contour(queue, free, says, levels=[0.5], colors="C3")
axes.plot([], [], "C3", label="threshold of the tree")
axes.plot(edges[0], edges[0] / alpha, "k--", label=f"threshold of DT, alpha {alpha:g}")
axes.set_yscale("symlog", linthresh=1)
axes.set(xlabel="queue (packets)", ylabel="free buffer (packets)")
axes.legend(loc="upper left")
plt.show()
