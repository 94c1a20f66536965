"""Interruptions that a callback swallows. Cost: a second."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_in_a_callback_that_cannot_raise_is_not_lost(number: signal.Signals) -> None:
    script = (
        "import signal, time, weakref\n"
        "from foretail.pipelines.runs.ending import Terminated, stoppable\n"
        "class Connection: ...\n"
        "stopped, connection = [], Connection()\n"
        f"reference = weakref.ref(connection, lambda _: signal.raise_signal({int(number)}))\n"
        "try:\n"
        "    with stoppable(stopped, of_process=True):\n"
        "        del connection\n"
        "        assert stopped\n"
        "        time.sleep(20)\n"
        "        print('lost')\n"
        "except KeyboardInterrupt as stop:\n"
        "    print(type(stop).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    expected = "Terminated" if number == signal.SIGTERM else "KeyboardInterrupt"
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")
