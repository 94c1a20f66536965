"""What all tests need."""

from __future__ import annotations

import signal

from hypothesis import settings

# No test judges by the clock: a loaded machine is no fault. `--hypothesis-profile=nightly` draws ten times as much.
for _profile, _examples in {"quick": 10, "ci": 100, "nightly": 1000}.items():
    settings.register_profile(_profile, deadline=None, max_examples=_examples)
settings.load_profile("ci")

# A job started in the background of a script ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
