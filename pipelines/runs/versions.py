"""Versions of what figures depend on."""

from __future__ import annotations

import platform
from importlib import metadata

VERSIONS_OF = (
    "foretail",
    "ns3",
    "numpy",
    "scipy",
    "pyarrow",
    "scikit-learn",
    "treelite",
    "xgboost",
    "xgboost-cpu",
    "torch",
    "onnxruntime",
    "mlflow",
    "optuna",
    "hydra-core",
)


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages that figures depend on; None where one is not installed."""
    by_package: dict[str, str | None] = {"python": platform.python_version()}
    return by_package | {package: version_of(package) for package in VERSIONS_OF}


def version_of(package: str) -> str | None:
    """Version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
