"""The digest of a folder: a hash of every file that Foretail wrote there, checked by whoever reads one of them.

``digest.json`` lies beside the files and holds a hash of its own lines as well. The hash is XXH3 of 128 bits, which
costs a fiftieth of reading Parquet. It tells of damage and of changes by hand. It does not tell of somebody who writes
the digest again, or who builds files of equal hash: the SHA-256 in manifests and certificates is what to publish.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import xxhash

from foretail.core.errors import ForetailError, readable
from foretail.core.json_text import parse_json

DIGEST_FILE = "digest.json"

_FORMAT = "foretail-digest-1"
_BLOCK_BYTES = 1 << 18

_READ: dict[tuple[Path, int, int, int], str] = {}
"""Hashes of files already read by this process, by path, inode, size and modification time."""


@dataclass(frozen=True)
class Examined:
    """Contents of a folder compared with its digest; paths relative to it, with ``/``."""

    whole: tuple[str, ...]  #: files of the digest that are as they were written
    damaged: tuple[str, ...]  #: those that were changed since
    missing: tuple[str, ...]  #: those that are no longer there
    #: files that the digest does not name: somebody else put them there. Nothing of ours reads them
    foreign: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """True if every file of the digest is as it was written."""
        return not self.damaged and not self.missing


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that a digest may name; hidden ones and its own digest are none of them."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if path.is_file() and relative.as_posix() != DIGEST_FILE and not hidden:
            yield path


def write_digest(folder: Path, files: Iterable[Path] | None = None) -> None:
    """Write the digest of a folder over `files`, all below it by default; what it names has to be complete."""
    named = files_below(folder) if files is None else files
    text = _text_of({path.relative_to(folder).as_posix(): _hash_of(path) for path in sorted(named)})
    partial = folder / f".{DIGEST_FILE}"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / DIGEST_FILE)


def check_folder(folder: Path, again: str) -> None:
    """Compare a folder with its digest, and the folders in it that have one with theirs.

    `again`: what to do about damage, such as ``collect the trace again``. ForetailError when a file was changed or is
    gone, or the digest is missing or damaged.
    """
    hashes = _read_digest(folder, again)
    if hashes is None:
        raise ForetailError(f"{folder} has no {DIGEST_FILE}, so that nobody can tell whether it is whole: {again}")
    for name, wanted in hashes.items():
        _check(folder / name, wanted, again)
        if name.endswith(f"/{DIGEST_FILE}"):
            check_folder((folder / name).parent, again)


def check_file(path: Path, again: str) -> None:
    """Compare one file with the digest beside it, if there is one that names it: else it is the user's own.

    ForetailError when the file was changed, or the digest is damaged.
    """
    hashes = _read_digest(path.parent, again)
    if hashes is not None and path.name in hashes:
        _check(path, hashes[path.name], again)


def examine(folder: Path) -> Examined:
    """Compare every file below a folder with its digest.

    ForetailError when there is no digest, or it is damaged itself.
    """
    hashes = _read_digest(folder, "write the folder again")
    if hashes is None:
        raise ForetailError(f"{folder} has no {DIGEST_FILE}, so it is not as Foretail wrote it")
    there = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    whole = {name for name, wanted in hashes.items() if name in there and _hash_of(there[name]) == wanted}
    return Examined(
        whole=tuple(sorted(whole)),
        damaged=tuple(sorted(name for name in hashes if name in there and name not in whole)),
        missing=tuple(sorted(name for name in hashes if name not in there)),
        foreign=tuple(name for name in there if name not in hashes and not _in_a_nested(folder, name)),
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def forget_hashes() -> None:
    """Read every file again: those that this process knows are not."""
    _READ.clear()


def _read_digest(folder: Path, again: str) -> Mapping[str, str] | None:
    """Return the hash of every file that the digest of a folder names; None when it has none."""
    path = folder / DIGEST_FILE
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ForetailError(f"cannot read {path} ({error.strerror}): {again}") from None
    try:
        document = parse_json(text)
        hashes = document["files"]
        sound = text == _text_of(hashes).encode()
        outside = [name for name in hashes if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]
    except (ValueError, KeyError, TypeError, AttributeError):
        sound, outside = False, []
    if not sound or outside:
        raise ForetailError(f"{path} was altered or damaged: {again}")
    return dict(hashes)


def _check(path: Path, wanted: str, again: str) -> None:
    with readable(f"{path}, which {DIGEST_FILE} names,", f"bring it back, or {again}"):
        digest = _hash_of(path)
    if digest != wanted:
        raise ForetailError(f"{path} is not as it was written, so it was altered or damaged: {again}")


def _in_a_nested(folder: Path, name: str) -> bool:
    """True if a folder inside, such as an export, has a digest of its own that speaks for a file."""
    return any((folder / parent / DIGEST_FILE).is_file() for parent in PurePosixPath(name).parents if parent.name)


def _hash_of(path: Path) -> str:
    """Return the hash of a file; one that is unchanged since this process last read it is not read again."""
    status = path.stat()
    key = (path.absolute(), status.st_ino, status.st_size, status.st_mtime_ns)
    if key not in _READ:
        digest, block = xxhash.xxh3_128(), memoryview(bytearray(_BLOCK_BYTES))
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(block):
                digest.update(block[:count])
        _READ[key] = digest.hexdigest()
    return _READ[key]


def _text_of(hashes: Mapping[str, str]) -> str:
    return json.dumps({"format": _FORMAT, "files": hashes, "of_files": _hash_of_lines(hashes)}, indent=1) + "\n"


def _hash_of_lines(hashes: Mapping[str, str]) -> str:
    return xxhash.xxh3_128_hexdigest("".join(f"{value}  {name}\n" for name, value in sorted(hashes.items())).encode())
