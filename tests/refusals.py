"""Tables of calls that are refused, with words of the sentence that says why."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError


def refusing(*rows: tuple[Callable[..., object], str]) -> Callable[..., None]:
    """Return a test of calls that are refused with words, a regular expression; a call may take a `folder`."""

    @pytest.mark.parametrize(("call", "words"), rows, ids=[words[:60] for _, words in rows])
    def test(call: Callable[..., object], words: str, tmp_path: Path) -> None:
        with pytest.raises(ForetailError, match=words):
            call(tmp_path) if "folder" in inspect.signature(call).parameters else call()

    made: Callable[..., None] = test
    return made
