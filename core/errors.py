"""The one exception type for everything a user can get wrong, and what no text that leaves memory may say."""

from __future__ import annotations

import re

_USER_INFORMATION = re.compile(r"(?<=://)[^/\s\"'?#]*@|(?<=[?&]password=)[^&\s\"']+")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def without_passwords(text: str) -> str:
    """`text` whose addresses name no user and no password."""
    return _USER_INFORMATION.sub("", text)


def printable(text: str) -> str:
    """`text` for a terminal: no passwords, and control characters, which could move its cursor, in letters."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), without_passwords(text))


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without its full stop; its type where there is no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip().rstrip(".")


class ForetailError(ValueError):
    """A user-facing error: its message is one sentence that names the thing and the fix, and is printable.

    The command line prints the message and exits with code 2; a traceback appears only with ``--debug``.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))
