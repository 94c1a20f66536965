"""The one exception type for everything a user can get wrong, and what no text that leaves memory may say."""

from __future__ import annotations

import io
import re
import string
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WORD = re.compile(r"""[^\s"'<>]+""")
_SCHEME = string.ascii_letters + string.digits + "+.-"
_FILES = ("sqlite", "file")
"""Schemes of addresses that are paths, in which an @ is a letter."""
_TOKEN = re.compile(
    r"""(?<=databricks://)dapi[^\s"'/]* |
    (?<=[?&]) (?P<name>password|passwd|pwd|sslpassword|token|access_token|api_key|secret) = [^&\s"']+""",
    re.IGNORECASE | re.VERBOSE,
)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def without_passwords(text: str) -> str:
    """`text` whose addresses name no user, no password and no token."""
    return without_tokens(_WORD.sub(lambda match: _user_left_out(match[0]), text) if "://" in text else text)


def _user_left_out(word: str) -> str:
    """`word` without the user of its address, which ends at the last @: a password may have an @ itself.

    It takes time in proportion to the length of the word, whatever stands there.
    """
    end, first = word.rfind("@"), 0
    while (place := word.find("://", first, max(end, 0))) >= 0:
        before = word[first:place]
        scheme = before[len(before.rstrip(_SCHEME)) :].lstrip("0123456789+.-")  # begins with a letter
        if scheme:
            start = place - len(scheme)
            return word[:start] + user_apart(word[start : end + 1])[1] + word[end + 1 :]
        first = place + 3
    return word


def without_tokens(text: str) -> str:
    """`text` whose addresses name no token and no password in a query."""
    return _TOKEN.sub(lambda match: f"{match['name']}=" if match["name"] else "", text)


def user_apart(address: str) -> tuple[str, str]:
    """The user and the password of an address, empty where it has none, and the address without them."""
    scheme, separator, rest = address.partition("://")
    user, _, where = rest.rpartition("@")
    if scheme.lower() in _FILES or ("/" in user and ":" not in user):  # a path with an @
        return "", address
    return user, f"{scheme}{separator}{where}"


def printable(text: str) -> str:
    """`text` for a terminal: no passwords, and control characters, which could move its cursor, in letters."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), without_passwords(text))


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without its full stop; its type where there is no text."""
    return (_text(error) or type(error).__name__).splitlines()[0].strip().rstrip(".")


def type_and_first_line(error: BaseException) -> str:
    """The type of an error, and the first line of its text where there is one."""
    return f"{type(error).__name__}: {first_line(error)}" if _text(error) else type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # an exception class of a user may fail to write itself
        return ""


class ForetailError(ValueError):
    """A user-facing error: its message is one sentence that names the thing and the fix, and is printable.

    The command line prints the message and exits with code 2; a traceback appears only with ``--debug``.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


@contextmanager
def users_code(failure: Callable[[str], ForetailError]) -> Iterator[None]:
    """Run code of a user: raise ``failure(reason)`` for whatever it raises, and where it closes the standard output.

    A ForetailError, a lack of memory and an interruption pass as they are.
    """
    try:
        yield
    except (ForetailError, MemoryError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise failure(type_and_first_line(error)) from error
    if sys.stdout is not None and sys.stdout.closed:
        sys.stdout = io.StringIO()  # for what the process still prints
        raise failure("it closed the standard output")


@contextmanager
def readable(what: object, remedy: str) -> Iterator[None]:
    """Raise ForetailError on `what`, a file, where the body cannot read it, or its bytes are no text."""
    try:
        yield
    except OSError as error:
        raise ForetailError(f"{what} cannot be read ({error.strerror or first_line(error)}): {remedy}") from None
    except UnicodeDecodeError:
        raise ForetailError(f"{what} cannot be read (it is no UTF-8 text): {remedy}") from None


def install_command(extra: str) -> str:
    """Return the command that installs an extra, which no package index has: it works in a clone.

    Examples
    --------
    >>> install_command("gym")
    "pip install '.[gym]' in Foretail's folder"
    """
    return f"pip install '.[{extra}]' in Foretail's folder"
