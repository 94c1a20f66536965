"""The one exception type for everything a user can get wrong."""

from __future__ import annotations


class ForetailError(ValueError):
    """A user-facing error: its message is one sentence that names the thing and the fix.

    The command line prints the message and exits with code 2; a traceback appears only with ``--debug``.
    """
