"""What all tests need."""

from __future__ import annotations

import signal

from hypothesis import settings

# No test judges by the clock: a loaded machine is no fault.
settings.register_profile("foretail", deadline=None)
settings.load_profile("foretail")

# A job started in the background of a script ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
