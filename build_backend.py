"""The build backend of pip: scikit-build-core, one build of this folder at a time, because builds share ``build/``."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403  # the hooks that build nothing

Hook = Callable[..., str]


def _alone(hook: Hook) -> Hook:
    @wraps(hook)
    def alone(*args: object, **more: object) -> str:
        lock_file = Path("build", "lock")
        lock_file.parent.mkdir(exist_ok=True)
        with lock_file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("another build of this folder is under way: waiting for its end", file=sys.stderr, flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            return hook(*args, **more)

    return alone


build_wheel, build_editable = _alone(build.build_wheel), _alone(build.build_editable)
