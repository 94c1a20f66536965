from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

import foretail.sim_bridge
from foretail.core.errors import ForetailError
from foretail.features.records import (
    ARRIVAL_DTYPE,
    FLOW_DTYPE,
    OCCUPANCY_DTYPE,
    REPLAY_DTYPE,
    Asked,
    FlowClass,
    Outcome,
    count_records,
    iterate_records,
    read_records,
)
from tests.traces import make_arrivals


@pytest.mark.parametrize("dtype", [ARRIVAL_DTYPE, FLOW_DTYPE, OCCUPANCY_DTYPE, REPLAY_DTYPE])
def test_layout_has_natural_alignment_and_no_hidden_padding(dtype: np.dtype[np.void]) -> None:
    assert dtype.itemsize % 8 == 0
    assert dtype.fields is not None
    end = 0
    for kind, offset, *_ in dtype.fields.values():
        assert offset == end
        assert offset % kind.base.itemsize == 0
        assert kind.base.byteorder in "<|" or np.little_endian
        end += kind.itemsize
    assert end == dtype.itemsize


@pytest.mark.parametrize("codes", [FlowClass, Asked, Outcome])
def test_codes_are_those_that_the_headers_write(codes: type[IntEnum]) -> None:
    assert foretail.sim_bridge.__file__
    headers = sorted(Path(foretail.sim_bridge.__file__).parent.glob("buffer/*.hpp"))
    text = "".join(header.read_text() for header in headers)
    (names,) = re.findall(rf"enum class {codes.__name__} : std::uint8_t {{ (.*?) }}", text)
    assert [(code.name.lower(), code.value) for code in codes] == list(zip(names.split(", "), range(9), strict=False))


def test_records_come_back_in_chunks(tmp_path: Path) -> None:
    records = make_arrivals(1000).records
    path = tmp_path / "arrivals.bin"
    records.tofile(path)
    assert count_records(path, ARRIVAL_DTYPE) == 1000
    chunks = list(iterate_records(path, ARRIVAL_DTYPE, 300))
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
    assert np.concatenate(chunks).tobytes() == records.tobytes()
    assert read_records(path, ARRIVAL_DTYPE).tobytes() == records.tobytes()


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "flows.bin"
    path.touch()
    assert read_records(path, FLOW_DTYPE).shape == (0,)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.bin"
    path.write_bytes(make_arrivals(10).records.tobytes()[:-1])
    size = ARRIVAL_DTYPE.itemsize
    with pytest.raises(
        ForetailError, match=rf"arrivals\.bin is truncated: {10 * size - 1} bytes are not a multiple of the {size}-byte"
    ):
        read_records(path, ARRIVAL_DTYPE)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"^cannot read .*flows\.bin: No such file"):
        read_records(tmp_path / "flows.bin", FLOW_DTYPE)


def test_a_file_that_shrinks_while_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.bin"
    make_arrivals(10_000).records.tofile(path)
    chunks = iterate_records(path, ARRIVAL_DTYPE, 5000)
    next(chunks)
    path.write_bytes(path.read_bytes()[: 128 * 6000])
    with pytest.raises(ForetailError, match="was cut short while it was read"):
        next(chunks)
