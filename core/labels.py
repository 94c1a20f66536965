"""Labels that a classifier may have been trained on: 0, or False, is accept and 1, or True, is drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretail.core.errors import ForetailError


def require_labels(classifier: str, classes: Sequence[Any]) -> None:
    """Raise ForetailError unless the classes of a classifier, in its own order, are 0 and 1, so that 1 can mean drop.

    Examples
    --------
    >>> from foretail.core.labels import require_labels
    >>> require_labels("RandomForestClassifier", [False, True])
    >>> require_labels("forest", ["drop", "keep"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    foretail.core.errors.ForetailError: the forest tells 2 classes apart ('drop', 'keep'): train it on labels 0 ...
    """
    known = np.asarray(classes).tolist()
    if known != [0, 1]:
        shown = ", ".join(map(repr, known[:4])) + (", ..." if len(known) > 4 else "")
        raise ForetailError(
            f"the {classifier} tells {len(known)} classes apart ({shown}): train it on labels 0 (accept) and 1 (drop)"
        )
