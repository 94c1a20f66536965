"""OPT, the most packets that any policy can transmit when it knows all arrivals: exact, by integer programming.

`late_qd` of the native core has to find the same. On overflow LateQD drops a packet of the queue that, were nothing
more dropped, would run empty latest. Why no policy beats it:

Dropping a packet that is in queue j makes that queue shorter by one from now until the departure phase in which it
would have run empty; there it sends one packet less, and from then on it is as if nothing had happened. Call that
moment E_j. Until the first overflow, in slot t, nothing need be dropped. There, let j be the queue with the latest E_j,
computed without any drops, and D the set of drops of an optimal policy. There is an equally small set that drops a
packet of j which is there at t:

- If D drops a packet of j that arrives by the slot of E_j and, when it came before t, has kept the queue shorter at t:
  drop one that is there at t in the place of the first such packet. Until then the queue is shorter by one, but misses
  no departure by that, for it has not run empty before E_j; from then on its length is the same.
- Otherwise D leaves j alone until E_j, and so has made room at t in another queue i by a packet p. Keep p and drop a
  packet of j that is there at t. Queue i becomes longer by one, before t, when there is room for everything, and from t
  to some moment no later than E_i, since drops only make a queue run empty earlier. Queue j becomes shorter by one from
  t to E_j, which is no earlier. The sum never grows after t.

Take that packet out of the arrivals and repeat: every drop of LateQD belongs to an optimal set. Which queue is taken
when several run empty in the same departure phase does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse


@dataclass(frozen=True, eq=False)
class OfflineOptimum:
    """What OPT does."""

    transmitted: int  #: packets transmitted in all, the final draining included: the packets accepted
    slot: NDArray[np.int64]  #: int64[k], the slots with arrivals, in order
    #: int64[k, ports], how many packets of each port one best policy accepts in each of them; which ones does not
    #: matter
    accepted: NDArray[np.int64]


def offline_optimum(ports: int, buffer: int, slot: ArrayLike, port: ArrayLike) -> OfflineOptimum:
    """Solve an instance exactly with HiGHS: ports N, buffer B in packets, and slot and port of each packet, in order.

    For every port and slot with arrivals: a, the packets accepted, at most those that arrive; x, the length of the
    queue after the arrivals; d, the packets that leave before the next slot with arrivals, at most one a slot. The x of
    a slot sum to at most the buffer. Sending less than possible is allowed and never helps.
    """
    slots, ports_of = np.asarray(slot, np.int64), np.asarray(port, np.int64)
    if len(slots) == 0:
        return OfflineOptimum(0, slots, np.zeros((0, ports), np.int64))
    present, step = np.unique(slots, return_inverse=True)
    steps = len(present)
    arrivals = np.zeros((steps, ports))
    np.add.at(arrivals, (step, ports_of), 1)

    # Variables, each [step, port]: a, x, d. Rows: x = x before - d before + a; d <= x; the sum of x <= buffer.
    one = sparse.identity(steps * ports)
    before = sparse.kron(sparse.eye(steps, k=-1), sparse.identity(ports))
    sums = sparse.kron(sparse.identity(steps), np.ones((1, ports)))
    none = sparse.csr_array((steps, steps * ports))
    zeros = np.zeros(steps * ports)
    constraints = [
        optimize.LinearConstraint(sparse.hstack([-one, one - before, before], format="csr"), zeros, zeros),
        optimize.LinearConstraint(sparse.hstack([0 * one, -one, one], format="csr"), -np.inf, zeros),
        optimize.LinearConstraint(sparse.hstack([none, sums, none], format="csr"), -np.inf, np.full(steps, buffer)),
    ]
    sendable = np.repeat(np.diff(present, append=present[-1] + 1), ports)
    upper = np.concatenate((arrivals.ravel(), np.full(steps * ports, buffer), sendable))
    solved = optimize.milp(
        np.concatenate((-np.ones(steps * ports), zeros, zeros)),
        integrality=np.concatenate((np.ones(steps * ports), zeros, zeros)),
        bounds=optimize.Bounds(0, upper),
        constraints=constraints,
        options={"mip_rel_gap": 0},
    )
    assert solved.status == 0
    accepted = np.rint(solved.x[: steps * ports]).astype(np.int64).reshape(steps, ports)
    return OfflineOptimum(int(accepted.sum()), present, accepted)
