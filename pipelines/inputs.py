"""The inputs of a model, as the datasets that it is trained on describe them."""

from __future__ import annotations

from collections.abc import Sequence

from foretail.features.dataset import Dataset
from foretail.features.errors import ForetailError
from foretail.models.ensemble import FeatureInput


def feature_inputs(names: Sequence[str], datasets: Sequence[Dataset]) -> tuple[FeatureInput, ...]:
    """The model's inputs, with the arithmetic that all `datasets` share."""
    kinds = {dataset.manifest.kind: dataset.path for dataset in datasets}
    if len(kinds) > 1:
        (one_kind, path), (other_kind, another) = kinds.items()
        raise ForetailError(
            f"{path} is of kind {one_kind} and {another} of kind {other_kind}, whose features are not computed alike: "
            "train on datasets of one kind"
        )
    arithmetic = {(dataset.manifest.cell_bytes, dataset.manifest.average_shift): dataset.path for dataset in datasets}
    if len(arithmetic) > 1:
        (one, path), (other, another) = list(arithmetic.items())[:2]
        raise ForetailError(
            f"{path} has cell_bytes={one[0]}, average_shift={one[1]} and {another} has cell_bytes={other[0]}, "
            f"average_shift={other[1]}: train on datasets of one arithmetic"
        )
    defined = {definition.name: definition for definition in datasets[0].manifest.features}
    for name in names:
        if name not in defined:
            raise ForetailError(
                f"{datasets[0].path}, of kind {datasets[0].manifest.kind}, has no feature {name}: "
                f"choose features.names from {', '.join(defined)}"
            )
    return tuple(FeatureInput(name, defined[name].params, defined[name].bits) for name in names)
