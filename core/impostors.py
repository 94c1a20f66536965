"""Impostors that lie in the place of a file: a pointer to it, a page about it, or the file compressed."""

from __future__ import annotations

import re
from pathlib import Path

from foretail.core.errors import ForetailError

COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
}
"""First bytes of compressed files."""

_HEAD_BYTES = 256
_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html)\b", re.IGNORECASE)


def refuse_impostor(path: Path) -> None:
    """Raise ForetailError when a file is a pointer of Git LFS, a web page, or compressed; OSError if it is unreadable.

    A file that is empty or missing is for its reader to refuse.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    refuse_pointer(str(path), head)
    for start, name in COMPRESSED.items():
        if head.startswith(start):
            raise ForetailError(f"{path} is compressed ({name}): unpack it and give the unpacked file")


def refuse_pointer(what: str, head: bytes) -> None:
    """Raise ForetailError when a file that begins with `head` is a pointer of Git LFS or a web page.

    `what` names it in errors.
    """
    if head.startswith(b"version https://git-lfs"):
        raise ForetailError(f"{what} is a pointer of Git LFS and not the file itself: fetch that with git lfs pull")
    if _PAGE.match(head):
        raise ForetailError(f"{what} is a web page and not the file itself: download the file, as by its raw link")
