"""The P4 program of a code with one coded packet: its statements, read from the text and run, restore what is lost."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.export.p4.text.xor_code import xor_code
from foretail.export.p4.tools.bmv2 import compile_p4
from foretail.sim_bridge.erasure_codes.block_code import coded_packets
from tests.export.p4.bmv2 import needs_p4_tools


class Register:
    def __init__(self) -> None:
        self.value = 0


class Header(SimpleNamespace):
    """A header of P4."""

    valid = False

    def isValid(self) -> bool:
        return self.valid

    def setValid(self) -> None:
        self.valid = True

    def setInvalid(self) -> None:
        self.valid = False


class Switch:
    """Runs the two controls of a program as Python that is made of their statements."""

    def __init__(self, text: str) -> None:
        self.controls: dict[str, tuple[str, dict[str, Any]]] = {}
        for name in ("Decode", "Encode"):
            body = re.search(rf"control {name}\(.*?\n}}\n", text, re.DOTALL)
            assert body is not None
            registers, _, apply = body[0].partition("    apply {\n")
            names = re.findall(r"register<bit<\d+>>\(1\) (\w+);", registers)
            self.controls[name] = (self.python(apply), {name: Register() for name in names})

    @staticmethod
    def python(apply: str) -> str:
        lines, depth = [], 0
        for raw in apply.splitlines()[:-2]:
            line = re.sub(r"//.*", "", raw).strip().rstrip(";")
            line = re.sub(r"^bit<\d+> (\w+)$", r"\1 = 0", line)
            line = re.sub(r"(\w+)\.read\((\w+), 0\)", r"\2 = \1.value", line)
            line = re.sub(r"(\w+)\.write\(0, ([\w.]+)\)", r"\1.value = \2", line)
            line = line.replace("clone(CloneType.E2E, 32w1)", "cloned = True")
            if line.startswith("}"):
                depth -= 1
            if line not in ("", "}"):
                lines.append("    " * depth + re.sub(r"(?:\} )?(if|else)\b(.*) \{$", r"\1\2:", line))
            depth += line.endswith("{")
        return "\n".join(lines)

    def run(self, control: str, hdr: SimpleNamespace, meta: SimpleNamespace) -> bool:
        """Run a control on a packet, and tell whether it is cloned."""
        code, registers = self.controls[control]
        names = {"hdr": hdr, "standard_metadata": meta, "cloned": False, "mark_to_drop": drop, **registers}
        exec(code, names)
        return bool(names["cloned"])

    def sent(self, frame: list[int]) -> list[tuple[int, int, list[int]]]:
        """What goes over the link for a frame from outside: block, place and words of every packet."""
        hdr = SimpleNamespace(code=Header(block=0, place=0), frame=Header())
        vars(hdr.frame).update({f"w{i}": word for i, word in enumerate(frame)})
        meta = SimpleNamespace(egress_spec=None, egress_port=1, instance_type=0)
        self.run("Decode", hdr, meta)
        assert meta.egress_spec == 1
        cloned = self.run("Encode", hdr, meta)
        packets = [self.packet(hdr, len(frame))]
        if cloned:
            meta.instance_type = 2
            self.run("Encode", hdr, meta)
            packets.append(self.packet(hdr, len(frame)))
        return packets

    @staticmethod
    def packet(hdr: SimpleNamespace, words: int) -> tuple[int, int, list[int]]:
        assert hdr.code.isValid()
        return hdr.code.block, hdr.code.place, [getattr(hdr.frame, f"w{i}") for i in range(words)]

    def received(self, packet: tuple[int, int, list[int]]) -> list[int] | None:
        """The frame that goes outside for a packet from the link."""
        block, place, words = packet
        hdr = SimpleNamespace(code=Header(block=block, place=place), frame=Header())
        hdr.code.setValid()
        vars(hdr.frame).update({f"w{i}": word for i, word in enumerate(words)})
        meta = SimpleNamespace(egress_spec=None, egress_port=0, instance_type=0)
        self.run("Decode", hdr, meta)
        assert not hdr.code.isValid()
        return None if meta.egress_spec is None else [getattr(hdr.frame, f"w{i}") for i in range(len(words))]


def drop(meta: SimpleNamespace) -> None:
    meta.egress_spec = None


@pytest.mark.parametrize("k", [1, 2, 4])
def test_one_lost_packet_of_a_block_is_restored_and_two_are_not(k: int) -> None:
    """Every way to lose up to two of a block, one block after another, with frames of two words."""
    random = np.random.default_rng(k)
    sender, receiver = Switch(xor_code(k, 300)), Switch(xor_code(k, 300))
    for lost in (of for count in (0, 1, 2) for of in combinations(range(k + 1), count)):
        frames = random.integers(1, 1 << 40, (k, 2)).tolist()
        packets = [packet for frame in frames for packet in sender.sent(frame)]
        assert [place for _, place, _ in packets] == list(range(k + 1))
        assert len({block for block, _, _ in packets}) == 1
        passed = [receiver.received(packet) for packet in packets if packet[1] not in lost]
        there = [frame for frame in passed if frame is not None]
        data_lost = [place for place in lost if place < k]
        restored = data_lost if len(lost) == 1 else []
        kept = [frame for place, frame in enumerate(frames) if place not in lost]
        assert there == kept + [frames[place] for place in restored]


def test_the_coded_packet_is_that_of_the_block_code() -> None:
    data = np.random.default_rng(1).integers(0, 256, (3, 256), np.uint8)
    sender = Switch(xor_code(3, 256))
    packets = [packet for row in data for packet in sender.sent([int.from_bytes(row.tobytes(), "big")])]
    assert packets[-1][2] == [int.from_bytes(coded_packets(data, 1).tobytes(), "big")]


def test_words_fill_the_frame_and_numbers_out_of_range_are_refused() -> None:
    assert re.findall(r"    bit<(\d+)> w\d;", xor_code(2, 600)) == ["2048", "2048", "704"]
    for arguments, complaint in (
        ((0, 64), "k is 0"),
        ((256, 64), "k is 256"),
        ((4, 1537), "frame_bytes is 1537"),
        ((4, 64, 0, 511), "link_port is 511"),
        ((4, 64, 2, 2), "are both 2"),
    ):
        with pytest.raises(ForetailError, match=complaint):
            xor_code(*arguments)


@needs_p4_tools
@pytest.mark.parametrize(("k", "frame_bytes"), [(1, 14), (10, 1500)])
def test_p4c_takes_the_program(k: int, frame_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "xor_code.p4").write_text(xor_code(k, frame_bytes))
    assert compile_p4(tmp_path / "xor_code.p4").exists()
