"""The P4 tools: p4c compiles a program, BMv2's simple_switch runs it on packets.

Neither is in a package registry; ``docs/guide/install.md`` says how to build them. The command port of a running
simple_switch listens on all interfaces, and BMv2 has no option for another address.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.proof import ProofError
from foretail.models.ensemble.ensemble import Ensemble

TOOLS = ("p4c-bm2-ss", "simple_switch", "simple_switch_CLI")

# What simple_switch reads and writes: link type Ethernet in, whole packets, no time between them.
_FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1)
_FILE_HEADER_BYTES, _RECORD_HEADER_BYTES = 24, 16

_QUEUE_DEPTH = 10_000_000
"""Packets; the 64 of an untouched egress queue overflow without a word."""


def compile_p4(program: Path, info: Path | None = None) -> Path:
    """Compile a P4_16 program for simple_switch and return the JSON beside it; `info` gets the P4Info, as text.

    ForetailError when p4c is not on PATH, refuses the program, or warns of it.
    """
    if shutil.which(TOOLS[0]) is None:
        raise ForetailError(f"{TOOLS[0]} is not on PATH: build it (docs/guide/install.md), or leave its setting out")
    compiled = program.with_suffix(".json")
    done = subprocess.run(
        [
            *("p4c-bm2-ss", "--std", "p4-16", "-o", str(compiled), str(program)),
            *(() if info is None else ("--p4runtime-files", str(info))),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = " ".join((done.stdout + done.stderr).split())
    if done.returncode or output:
        raise ForetailError(f"p4c complains of {program.name} ({output[:300]}): report this as a bug")
    return compiled


class SimpleSwitch:
    """A simple_switch process with one port, 0, that reads packets from a pipe and writes them to a file.

    A pipe instead of a file, because files are read from a fixed time after the start on, whether or not the tables
    have been filled by then. Use it as a context: leaving it ends the process. ForetailError from every method: when
    simple_switch ends, is late, or refuses a command.

    Parameters
    ----------
    compiled : of :func:`compile_p4`
    folder : where the files of the port go
    """

    def __init__(self, compiled: Path, folder: Path) -> None:
        self._compiled = compiled
        self._folder = folder
        self._sent = 0
        self._taken = _FILE_HEADER_BYTES

    def __enter__(self) -> Self:
        pipe = self._folder / "port_in.pcap"
        os.mkfifo(pipe)
        # Both directions, so that neither side waits for the other to open it.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._out = self._folder / "port_out.pcap"
        self._log = (self._folder / "switch.log").open("w")
        self._thrift = free_port()
        os.write(self._pipe, _FILE_HEADER)
        self._process = subprocess.Popen(
            self._command_line(),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + 30
            while not self._listens():
                self._check(deadline, "its command line does not answer")
                time.sleep(0.05)
            self.command(f"set_queue_depth {_QUEUE_DEPTH}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _command_line(self) -> list[str]:
        options = ("--use-files", "0", "-i", "0@port", "--thrift-port", str(self._thrift))
        return ["simple_switch", *options, "--device-id", str(self._thrift), str(self._compiled.resolve())]

    def command(self, *lines: str) -> str:
        """Run lines of simple_switch_CLI and return what it says; a line that it refuses is a failure."""
        done = subprocess.run(
            ["simple_switch_CLI", "--thrift-port", str(self._thrift)],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        refusals = re.findall(r"(?im)^.*(?:error|invalid|unknown).*$", done.stdout)
        if done.returncode or refusals:
            reason = (refusals or done.stderr.splitlines() or ["without a word"])[0]
            raise ForetailError(f"simple_switch_CLI refuses a command ({reason[:200]}): report this as a bug")
        return done.stdout

    def exchange(self, packets: Sequence[bytes], replies: int | None = None, seconds: float = 60) -> list[bytes]:
        """Send packets to port 0 and return what comes out of it: `replies` packets, one each unless told otherwise."""
        data = b"".join(struct.pack("<IIII", 0, 0, len(p), len(p)) + p for p in packets)
        deadline = time.monotonic() + seconds
        at = 0
        while at < len(data):
            try:
                at += os.write(self._pipe, data[at : at + (1 << 16)])
            except BlockingIOError:
                self._check(deadline, f"it has read {at} of {len(data)} bytes")
                time.sleep(0.005)
        wanted = len(packets) if replies is None else replies
        received: list[bytes] = []
        while len(received) < wanted:
            received += self._new_packets()
            self._check(deadline, f"{len(received)} of {wanted} packets came out")
            time.sleep(0.02)
        return received

    def _new_packets(self) -> list[bytes]:
        with self._out.open("rb") as file:
            file.seek(self._taken)
            data = file.read()
        packets, at = [], 0
        while at + _RECORD_HEADER_BYTES <= len(data):
            size = struct.unpack_from("<I", data, at + 8)[0]
            end = at + _RECORD_HEADER_BYTES + size
            if end > len(data):
                break
            packets.append(data[at + _RECORD_HEADER_BYTES : end])
            at = end
        self._taken += at
        return packets

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._thrift)) == 0

    def _check(self, deadline: float, state: str) -> None:
        log = (self._folder / "switch.log").read_text()[-2000:]
        last = " ".join(log.split())[-200:]
        if self._process.poll() is not None:
            raise ForetailError(f"simple_switch ended with {self._process.returncode} ({last}): report this as a bug")
        if time.monotonic() >= deadline:
            raise ForetailError(f"simple_switch is late ({state}; {last}): try again on a machine with less to do")

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._pipe)
        self._log.close()


def tool_versions() -> str:
    """Return which p4c and simple_switch are on PATH; ForetailError when one is missing."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise ForetailError(f"{', '.join(missing)} not on PATH: build p4c and BMv2 (docs/guide/install.md)")
    runs = (
        subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60, check=False)
        for tool in TOOLS[:2]
    )
    outputs = (run.stdout + run.stderr for run in runs)
    p4c, switch = (re.search(r"\d+(?:\.\d+)+", text) for text in outputs)
    return f"p4c {p4c[0] if p4c else '?'} and simple_switch {switch[0] if switch else '?'}"


def run_on_bmv2(ensemble: Ensemble, texts: Mapping[str, str], name: str, rows: npt.NDArray[np.int64]) -> None:
    """Compile ``<name>_main.p4``, without a warning, and compare its answers to packets with the ensemble's scores.

    The ensemble has votes, `texts` is what ``render_p4`` returned, `rows` are int64[packets, features]. ProofError with
    the packet whose score or decision is another. ForetailError when a tool is missing or fails.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="ascii")
        compiled = compile_p4(folder / f"{name}_main.p4")
        with SimpleSwitch(compiled, folder) as switch:
            if f"{name}.commands.txt" in texts:
                switch.command(*texts[f"{name}.commands.txt"].splitlines())
            replies = switch.exchange([b"".join(int(v).to_bytes(3, "big") for v in row) for row in rows])
    expected, header = ensemble.score(rows), 3 * rows.shape[1]
    for row, reply, score in zip(rows.tolist(), replies, expected.tolist(), strict=True):
        answered = int.from_bytes(reply[header:-1], "big", signed=True), bool(reply[-1])
        if answered != (score, score > (ensemble.default_tau or 0)):
            raise ProofError(
                f"BMv2 answers {answered} where the model scores {score}, at {row}: nothing is exported, report this"
            )


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
