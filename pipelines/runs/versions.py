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
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in VERSIONS_OF:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found
