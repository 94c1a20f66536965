"""
What does each policy drop in two bursts?
=========================================

A switch with 8 ports and a buffer of 40 packets meets two bursts. The first one goes to port 0, the second one to
port 1 while the queue of port 0 is still long. The picture shows both queues under three policies.
"""

# %%
# A port sends one packet per slot. Ports 0 and 1 get a packet in every second slot, and three packets per slot in a
# burst. The other ports are quiet.
import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt

from foretail.gym import ACCEPT, DROP, BufferEnv, FromFile

PORTS, BUFFER, SLOTS = 8, 40, 100
BURSTS = {0: range(10, 32), 1: range(26, 48)}
arrivals = [
    (slot, port)
    for slot in range(SLOTS)
    for port, burst in BURSTS.items()
    for _ in range(3 if slot in burst else slot % 2)
]
scratch = TemporaryDirectory()
file = Path(scratch.name) / "arrivals.csv"
with file.open("w", newline="") as lines:
    csv.writer(lines).writerows([("slot", "port"), *arrivals])

# %%
# An environment stops at each packet, and we decide. Complete Sharing accepts every packet that fits. Dynamic
# Thresholds (DT) with alpha 1 refuse a packet if its queue is as long as the free part of the buffer. The feature
# ``threshold`` is the length of the queue under LQD with this packet. LQD pushes out packets of the longest queue.
traffic = FromFile(file, PORTS, BUFFER, cell_bytes=1024)  # one cell per packet, in which features count
env = BufferEnv(traffic, features=("queue", "occupancy", "threshold"), labels=True)
ALPHAS = {"Complete Sharing": float("inf"), "DT, alpha 1": 1.0}
lengths: dict[str, list[dict[int, int]]] = {name: [{} for _ in BURSTS] for name in (*ALPHAS, "LQD")}
drops = {name: [0 for _ in BURSTS] for name in lengths}
for name, alpha in ALPHAS.items():
    drops["LQD"] = [0 for _ in BURSTS]  # LQD sees the same packets each time
    (queue, occupancy, threshold), info = env.reset()
    for slot, port in arrivals:
        lengths[name][port][slot], lengths["LQD"][port][slot] = queue, threshold
        drops["LQD"][port] += info["lqd_drop"]
        accept = occupancy < BUFFER and queue < alpha * (BUFFER - occupancy)
        (queue, occupancy, threshold), _, _, _, info = env.step(ACCEPT if accept else DROP)
        drops[name][port] += not accept
scratch.cleanup()
for name, lost in drops.items():
    print(f"{name}: {lost[0]} packets of the first burst are dropped, {lost[1]} of the second")

# %%
# Complete Sharing lets the first burst take the buffer, and the second burst pays. DT keep a part of the buffer free,
# so they drop packets of the first burst too early. LQD gives all of the buffer to the first burst, and takes a part
# back when the second one comes. A predictor of Credence names the packets that LQD takes back.
figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for axes, (name, queues) in zip(panels, lengths.items(), strict=True):
    for port, (style, length) in enumerate(zip(("-", "--"), queues, strict=True)):
        axes.plot(list(length), list(length.values()), style, label=f"port {port}")
    axes.set(title=f"{name}: {sum(drops[name])} dropped", xlabel="slot")
panels[0].set_ylabel("queue (packets)")
panels[0].legend()
plt.show()
