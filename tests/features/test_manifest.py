from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import Manifest, PartFile
from tests.traces import RUN

FILES = (
    PartFile("rows/part-00000.parquet", 10, "a" * 64),
    PartFile("rows/part-00001.parquet", 3, "b" * 64),
    PartFile("control/part-00000.parquet", 5, "c" * 64),
)
MANIFEST = Manifest.of(RUN, FILES, drops=2)


def test_content_hash_depends_on_every_file_and_their_order() -> None:
    hashes = {Manifest.of(RUN, files, 0).content_sha256 for files in (FILES, FILES[:2], FILES[::-1], ())}
    assert len(hashes) == 4


def _changed(path: list[str | int], value: Any) -> str:
    plain = json.loads(MANIFEST.to_json())
    inner = plain
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(plain)


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000, '{"scenario":' * 200 + "1" + "}" * 200])
def test_what_is_no_json_is_refused_in_one_sentence(text: str | bytes) -> None:
    with pytest.raises(ForetailError, match=r"^m\.json is not valid JSON \(.*\): collect the trace again$"):
        Manifest.from_json(text, "m.json")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ["schema_version"],
            1,
            r"^m\.json has schema_version 1 but this Foretail reads version 2: collect the trace again",
        ),
        (["schema_version"], None, r"^m\.json is not a valid manifest at schema_version: Field required$"),
        (["seed"], None, r"at seed: Field required"),
        (["seed"], "1", r"at seed: Input should be a valid integer"),
        (["seed"], True, r"at seed: Input should be a valid integer"),
        (["seed"], -1, r"at seed: "),
        (["mood"], 1, r"at mood: "),
        (["kind"], "model", r"at kind: "),
        (["rules", "tie"], "coin", r"at rules\.tie: Input should be 'lowest_port' or 'highest_port'"),
        (["switches"], [], r"at switches: "),
        (["switches", 0, "buffer_bytes"], 0, r"at switches\.0\.buffer_bytes: "),
        (["switches", 1, "port_rates_bps"], [10], r"contradicts itself at switches\.port_rates_bps"),
        (["files", 0, "path"], "../../etc/passwd", r"at files\.0\.path: "),
        (["files", 0, "sha256"], "A" * 64, r"at files\.0\.sha256: "),
        (["files", 0, "sha256"], "0" * 64, r"contradicts itself at content_sha256"),
        (["cell_bytes"], 100, r"contradicts itself at cell_bytes"),
        (["average_shift"], 12, r"contradicts itself at features"),
        (["features", 0, "name"], "mood", r"contradicts itself at features"),
        (["rows"], 14, r"contradicts itself at rows"),
        (["control_rows"], 6, r"contradicts itself at control_rows"),
        (["drops"], 14, r"contradicts itself at drops"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_sentence(path: list[str | int], value: Any, message: str) -> None:
    with pytest.raises(ForetailError, match=message) as caught:
        Manifest.from_json(_changed(path, value), "m.json")
    assert "m.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", b"\xff\xfe"])
def test_a_file_that_is_no_manifest_is_refused(text: str | bytes) -> None:
    with pytest.raises(ForetailError, match=r"^m\.json is not (a )?valid ") as caught:
        Manifest.from_json(text, "m.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_a_run_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ForetailError, match="cannot be described in a manifest"):
        Manifest.of(replace(RUN, scenario={"load": value}), (), 0).to_json()
