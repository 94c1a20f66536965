"""One hash for equal values: of bytes that depend on nothing but them, no path, time, version or machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

LENGTH = 24
"""Hexadecimal digits of a fingerprint: 96 bits."""


def fingerprint(*values: Any) -> str:
    """Return the hash of values: arrays, frames, texts, bytes, numbers, and whatever holds such by name or in order."""
    digest = hashlib.sha256()
    for value in values:
        _add(digest, value)
    return digest.hexdigest()[:LENGTH]


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        _put(digest, f"array {np.lib.format.dtype_to_descr(value.dtype)} {value.shape}", value.tobytes())
    elif isinstance(value, pd.DataFrame):
        _put(digest, f"frame {len(value)}", json.dumps(list(value.columns)).encode())
        for name in value.columns:
            column = value[name]
            # text and missing values have no bytes of their own
            exact = column.dtype.kind in "iufb" and isinstance(column.dtype, np.dtype)
            _add(digest, column.to_numpy() if exact else [None if pd.isna(item) else str(item) for item in column])
    elif is_dataclass(value) and not isinstance(value, type):
        _add(digest, {field.name: getattr(value, field.name) for field in fields(value)})
    elif isinstance(value, Mapping):
        _put(digest, f"mapping {len(value)}", b"")
        for name in sorted(value, key=str):
            _add(digest, str(name))
            _add(digest, value[name])
    elif isinstance(value, list | tuple):
        _put(digest, f"sequence {len(value)}", b"")
        for item in value:
            _add(digest, item)
    elif isinstance(value, bytes):
        _put(digest, "bytes", value)
    elif isinstance(value, float):
        _put(digest, "float", float(value).hex().encode())
    elif isinstance(value, bool | np.bool_):
        _put(digest, "bool", str(bool(value)).encode())
    elif isinstance(value, int | np.integer):
        _put(digest, "int", str(int(value)).encode())
    elif isinstance(value, str | Fraction) or value is None:
        _put(digest, type(value).__name__, str(value).encode())
    else:
        raise TypeError(f"no fingerprint of {type(value).__name__}: say which bytes are its own")


def _put(digest: Any, kind: str, content: bytes) -> None:
    digest.update(f"{kind} {len(content)}\n".encode() + content)


def parameters_text(**parameters: Any) -> str:
    """Return parameters as they stand in a file: ``name=value``, separated by blanks."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())
