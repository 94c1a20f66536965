"""What is looked at when a command has ended: results, registry, processes, locks, leftovers."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

MARK = "FORETAIL_TORTURE"
"""An environment variable with the case's name, which every process that the command starts inherits."""

_MLFLOW = ("mlartifacts", "mlflow.db", "search.journal")
_TEXT_BYTES = 4_000_000


def results(folder: Path, address: str = "") -> dict[str, str]:
    """Return everything that a command left below ``outputs``, value by value.

    A JSON document gives one entry per number or text in it, any other text one per line, other files their hash. The
    folder's own path and the `address` of a server are left out; entries of the store go by what they
    depend on, which names paths.
    """
    hidden_texts = {f"sqlite:///{folder}/outputs/mlflow.db": "STORE", address or "\0": "STORE", str(folder): "HERE"}
    found: dict[str, str] = {}
    names: dict[Path, str] = {}
    outputs = folder / "outputs"
    for path in sorted(outputs.rglob("*")):
        relative = path.relative_to(outputs)
        hidden = any(part.startswith(".") for part in relative.parts)
        if not path.is_file() or hidden or relative.parts[0].startswith(_MLFLOW) or path.name == "digest.json":
            continue
        where = relative.as_posix()
        if relative.parts[0] == "store" and len(relative.parts) > 3:
            entry = outputs.joinpath(*relative.parts[:3])
            names.setdefault(entry, _entry_name(entry, hidden_texts))
            where = "/".join((names[entry], *relative.parts[3:]))
        for name, value in _values(path, hidden_texts):
            found[f"{where}{name}"] = value
    database = outputs / "mlflow.db"
    if database.exists():
        found |= {f"alias {alias}": model for alias, model in aliases(database).items()}
        with closing(sqlite3.connect(database)) as store:
            rows = store.execute(
                "SELECT DISTINCT m.key, m.value FROM latest_metrics m JOIN runs r ON m.run_uuid = r.run_uuid "
                "WHERE r.status = 'FINISHED' AND r.lifecycle_stage = 'active' AND m.key NOT LIKE '%seconds%'"
            )
            found |= {f"metric {key} {value!r}": "" for key, value in rows}
    return found


def _entry_name(entry: Path, hidden: Mapping[str, str]) -> str:
    try:
        depends_on = json.loads((entry / "key.json").read_text())["depends_on"]
    except (OSError, ValueError, KeyError, TypeError):  # damaged
        depends_on = entry.name
    text = _without(hidden, json.dumps(depends_on, sort_keys=True))
    return f"store/{entry.parent.name}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _without(hidden: Mapping[str, str], text: str) -> str:
    for what, instead in hidden.items():
        text = text.replace(what, instead)
    return text


def _values(path: Path, hidden: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    content = path.read_bytes()
    try:
        text = content.decode() if len(content) < _TEXT_BYTES else None
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        yield "", hashlib.sha256(content).hexdigest()
        return
    text = _without(hidden, text)
    with contextlib.suppress(ValueError):  # damaged
        if path.suffix == ".json":
            yield from _flat("", json.loads(text))
            return
    yield from ((f" line {number}", line) for number, line in enumerate(text.splitlines(), 1))


def _flat(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(f"{where}.{name}", item)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _flat(f"{where}[{number}]", item)
    else:
        yield where, json.dumps(value)


def aliases(database: Path) -> dict[str, str]:
    """Return the hash of the ensemble or network behind every alias of the registry."""
    with closing(sqlite3.connect(database)) as store:
        rows = store.execute(
            "SELECT a.name, a.alias, t.value FROM registered_model_aliases a "
            "JOIN model_versions v ON v.name = a.name AND v.version = a.version "
            "JOIN tags t ON t.run_uuid = v.run_id AND t.key IN ('ensemble_sha256', 'network_sha256')"
        ).fetchall()
    return {f"{name}@{alias}": value for name, alias, value in rows}


def open_runs(database: Path) -> int:
    """Return how many runs MLflow shows as running although nobody is left."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database)) as store:
        return int(store.execute("SELECT count(*) FROM runs WHERE status = 'RUNNING'").fetchone()[0])


def processes(case: str) -> list[str]:
    """Return the processes of a case that still live, by what they run."""
    wanted = f"{MARK}={case}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()[:80]!r}")
    return found


def held_locks(folder: Path) -> list[str]:
    """Return the lock files, and the partial folders, that somebody still holds."""
    held = []
    for path in folder.rglob(".*"):
        if path.name.endswith(".lock") or ".partial-" in path.name:
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(str(path.relative_to(folder)))
                finally:
                    os.close(descriptor)
    return held


def leftovers(folder: Path) -> dict[str, int]:
    """Return what no complete run leaves, with its bytes: hidden partial files and folders, and temporary files."""
    found: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        partial = path.name.startswith(".") and not path.name.endswith(".lock")
        temporary = relative.parts[0] == "tmp" and len(relative.parts) == 2
        inside = any(str(relative).startswith(f"{known}/") for known in found)
        if (partial or temporary) and not inside:
            files = [path, *path.rglob("*")] if path.is_dir() else [path]
            found[str(relative)] = sum(file.stat().st_size for file in files if file.is_file())
    return found
