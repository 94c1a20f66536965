"""The labelled rows of a trace under another victim rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.core.summary import Summarised
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Victim
from foretail.sim_bridge.open_loop.push_outs import push_outs, with_victim
from foretail.sim_bridge.open_loop.replay import arrivals_with, replay_of


@dataclass(frozen=True, eq=False, repr=False)
class RelabelledRows(Summarised):
    """The labelled rows of a trace under another victim rule."""

    #: int32 [rows, features], in the order of ``catalog.FEATURES``, real ones on the queues of a Credence that is told
    #: these labels
    features: NDArray[np.int32]
    lqd_drop: NDArray[np.bool_]  #: bool [rows], the labels
    asked: NDArray[np.bool_]  #: bool [rows], where that Credence asks


def relabelled(dataset: Dataset, victim: Victim) -> RelabelledRows:
    """Rows of the same arrivals under another victim rule: LQD and the shadow Credence replayed, nothing simulated.

    In bytes the lengths of LQD's queues depend on the sizes of its victims, so the virtual features change as well.
    Errors are those of :func:`push_outs`.
    """
    labels = push_outs(dataset, victim).lqd_drop
    run = with_victim(dataset.manifest, victim)
    shadow = replay_of("credence", run, pauses=dataset.pauses(), features=True)
    features, asked = [], []
    for arrivals, is_data, drop in arrivals_with(dataset, labels.view(np.uint8), of_control=0):
        seen = shadow.feed(arrivals, drop)
        features.append(seen["features"][is_data])
        asked.append(seen["asked"][is_data] != 0)
    return RelabelledRows(np.concatenate(features), labels, np.concatenate(asked))
