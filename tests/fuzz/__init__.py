"""Fuzzing of everything that Foretail reads: ``make fuzz``, or ``python -m tests.fuzz --seconds 3600 --only P4``.

Without ``--seconds`` every reader gets a number of inputs, the same ones each time.

Whatever the bytes, a reader returns or raises a ForetailError of one line. Three engines: atheris guides readers in
Python by coverage; libFuzzer guides the settings of the ns-3 driver, with sanitizers; and readers that stand on other
people's native code run in a fork per input, where a crash ends no more than the fork, as in the sandbox of the door.
"""
