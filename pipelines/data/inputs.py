"""The datasets that settings name, and the inputs of a model as they describe them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretail.configs.schema.training import Split as SplitConfig
from foretail.core.digest import check_folder
from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.features.catalog import REAL_FEATURES, SHADOW_PREFIX
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import MANIFEST_NAME
from foretail.features.rows import splits
from foretail.models.ensemble.ensemble import ColumnInput, FeatureInput
from foretail.models.ensemble.model_files import NamedColumns
from foretail.pipelines.runs.result import RESULT_FILE

if TYPE_CHECKING:
    from foretail.configs.schema.model_stages import PromoteConfig, TrainConfig
    from foretail.pipelines.data.collecting import CollectedRun


def open_datasets(paths: Sequence[str]) -> list[Dataset]:
    """Open every dataset that `paths` name, in order: dataset folders, run folders of ``foretail collect``, or the
    folders of its sweeps."""
    return [Dataset.open(folder) for path in paths for folder in _dataset_folders(Path(path))]


def given_runs(
    config: TrainConfig | PromoteConfig, seeds: Sequence[int]
) -> tuple[tuple[CollectedRun, ...], list[Dataset]]:
    """The datasets that settings name, else those of their scenario for `seeds`, and what was collected for these."""
    if config.datasets:
        return (), open_datasets(config.datasets)
    from foretail.pipelines.data.collecting import collect_runs  # which imports every simulator

    ((_, policy),) = config.policy.items()
    collected = collect_runs(config, config.scenario, policy, seeds)
    return collected, [Dataset.open(run.path) for run in collected]


def open_dataset(path: str) -> Dataset:
    """Open a dataset, or the first of those that `path` names as in :func:`open_datasets`."""
    return open_datasets([path])[0]


def _dataset_folders(path: Path) -> Iterator[Path]:
    if (path / MANIFEST_NAME).is_file() or not path.is_dir():
        yield path
    elif (path / RESULT_FILE).is_file():
        yield from _collected(path / RESULT_FILE)
    else:
        results = sorted(path.glob(f"*/{RESULT_FILE}"), key=lambda file: (len(file.parent.name), file.parent.name))
        if not results:
            raise ForetailError(f"{path} contains no dataset and no run of foretail collect: name one of these folders")
        for result in results:
            yield from _collected(result)


def _collected(result: Path) -> Iterator[Path]:
    try:
        document = parse_json(result.read_bytes())
        if document["stage"] != "collect":
            raise ValueError(f"of foretail {document['stage']}")
        paths = [Path(run["path"]) for run in document["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ForetailError(
            f"{result} is not a result of foretail collect ({error}): name the folder of a run"
        ) from None
    check_folder(result.parent, "collect the runs again")
    yield from paths


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


def column_inputs(columns: Sequence[str], datasets: Sequence[Dataset]) -> tuple[FeatureInput, ...]:
    """The inputs of a model that was trained on these columns of datasets, whose frames name some ``shadow_queue``."""
    inputs = feature_inputs([column.removeprefix(SHADOW_PREFIX) for column in columns], datasets)
    return tuple(
        one if one.name == column else ColumnInput(one.name, one.params, one.bits, column)
        for one, column in zip(inputs, columns, strict=True)
    )


def dataset_columns(dataset: Dataset) -> NamedColumns:
    """All columns of a dataset on which a model can have been trained."""
    names = [definition.name for definition in dataset.manifest.features]
    shadow = [SHADOW_PREFIX + name for name in names if name in REAL_FEATURES and dataset.is_trace]
    return NamedColumns(column_inputs([*names, *shadow], [dataset]))


def split_datasets(config: SplitConfig, datasets: Sequence[Dataset]) -> splits.Split:
    """Split datasets as configured."""
    if config.name == "by_run":
        return splits.split_by_seed(datasets, config.train, config.validation, config.test)
    if config.name == "drawn":
        return splits.split_by_run(datasets, config.validation_fraction, config.test_fraction, config.seed)
    return splits.split_by_time(datasets, config.validation_fraction, config.test_fraction, config.gap_ns)
