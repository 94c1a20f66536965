"""Two hundred inputs of somebody who means harm: none runs code, reads or writes elsewhere, or takes the machine.

Each is refused in one sentence or is harmless. A canary file tells whether code ran. Cost: half a minute, most of it
sandboxes that start.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle  # noqa: TID251  the attacker's
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretail.core import digest
from foretail.core.digest import DIGEST_FILE, check_folder
from foretail.core.errors import ForetailError
from foretail.export.c.target import render_c
from foretail.export.folder import check_name
from foretail.export.onnx.graph import render_onnx
from foretail.features.demand.matrix import read_demand
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.model_files import load_model_file
from foretail.models.mlflow.registry import load_ensemble
from foretail.pipelines.reporting.page import render_page
from foretail.pipelines.reporting.run_record import RunRecord
from tests.export.p4.p4_texts import texts_of
from tests.forests import stump
from tests.fuzz.readers import READERS, TWO

pytestmark = pytest.mark.slow

FLOOD_BYTES = 3 << 30
"""Address space in which a bomb must be refused; what it would unpack to is larger."""


class Harm:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch canary",)


def pickles() -> Iterator[tuple[str, bytes]]:
    for protocol in range(6):
        yield f"protocol {protocol}", pickle.dumps(Harm(), protocol)
    plain = pickle.dumps(Harm(), 4)
    yield "gzip", gzip.compress(plain)
    yield "bz2", bz2.compress(plain)
    yield "xz", lzma.compress(plain)
    yield "zlib", zlib.compress(plain)
    yield "lzma", lzma.compress(plain, lzma.FORMAT_ALONE)
    yield "behind white space", b"  \n" + plain
    yield "behind an opening brace", b"{" + plain
    stream = io.BytesIO()
    np.save(stream, np.array([Harm()], object), allow_pickle=True)
    yield "an array of objects", stream.getvalue()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", plain)
    yield "torch's archive", stream.getvalue()


def skops_files() -> Iterator[tuple[str, bytes]]:
    nodes: dict[str, dict[str, Any]] = {
        "a function": {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode", "content": "os.system"},
        "a type": {"__class__": "Popen", "__module__": "subprocess", "__loader__": "TypeNode"},
        "an object": {"__class__": "Popen", "__module__": "subprocess", "__loader__": "ObjectNode", "content": {}},
        "a method": {"__class__": "method", "__module__": "builtins", "__loader__": "MethodNode", "content": {}},
        "an operator": {"__class__": "methodcaller", "__module__": "operator", "__loader__": "OperatorFuncNode"},
        "eval": {
            "__class__": "eval",
            "__module__": "builtins",
            "__loader__": "FunctionNode",
            "content": "builtins.eval",
        },
        "a partial": {"__class__": "partial", "__module__": "functools", "__loader__": "PartialNode", "content": {}},
        "an array of objects": {
            "__class__": "ndarray",
            "__module__": "numpy",
            "__loader__": "NdArrayNode",
            "type": "numpy",
        },
        "nothing": {},
    }
    for name, node in nodes.items():
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("schema.json", json.dumps(node | {"__id__": 1, "protocol": 2, "_skops_version": "0.16"}))
            archive.writestr("0.npy", pickle.dumps(Harm()))
        yield name, stream.getvalue()


@pytest.mark.nightly
@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in pickles()])
@pytest.mark.parametrize("name", ["model", "model.json", "model.skops", "demand.npy"])
def test_nothing_is_unpickled(name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    read = read_demand if name.endswith(".npy") else partial(load_model_file, features=TWO)
    with pytest.raises(ForetailError):
        read(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.nightly
@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in skops_files()])
def test_skops_brings_trees_and_nothing_else(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.skops").write_bytes(content)
    with pytest.raises(ForetailError):
        load_model_file(tmp_path / "model.skops", TWO)
    assert [path.name for path in tmp_path.iterdir()] == ["model.skops"]


OUTSIDE = ("../secret", "../../secret", "/etc/passwd", "a/../../secret", "..", "/proc/self/environ")


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("file", ["result.json", "manifest.json"])
def test_files_outside_of_a_folder_are_not_read(file: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for seed in READERS[file.removesuffix(".json")].seeds(tmp_path / "seeds"):
        document = json.loads(seed)
        if file == "result.json":
            document["files"] = [name]
        else:
            document["files"][0]["path"] = name
        (folder / file).write_text(json.dumps(document))
    with pytest.raises(ForetailError):
        READERS[file.removesuffix(".json")].read(folder / file)


@pytest.mark.parametrize("name", OUTSIDE)
def test_digests_speak_of_no_file_outside_of_their_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / DIGEST_FILE).write_text(digest._text_of({name: "0" * 32}))
    with pytest.raises(ForetailError, match=r"digest\.json was altered or damaged"):
        check_folder(tmp_path, "make it again")


@pytest.mark.parametrize("prefix", [*OUTSIDE, "a b", "a;b", "a\nb", 'a"b', "a*/b", "A", "", "1a", "a" * 100])
def test_prefixes_of_generated_code_are_names(prefix: str) -> None:
    with pytest.raises(ForetailError):
        check_name(prefix)


CODE = (
    'x"; system("touch canary"); "',
    "x*/ int y; /*",
    'x\n#include "/etc/passwd"\n',
    "x??/",
    "x\\",
    "x);}",
    "x{{ 7*7 }}",
    "x{% raw %}",
    '@name("y") x',
    "x // y",
    "x\u2028y",
    "\u202ex",
    "x\0y",
    "__asm__",
    "x-y",
    "é",
)


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("target", ["c", "p4", "onnx"])
def test_names_never_reach_generated_code_unescaped(target: str, name: str) -> None:
    renders: dict[str, Callable[[Ensemble], Any]] = {
        "c": lambda ensemble: "".join(render_c(ensemble).values()),
        "p4": lambda ensemble: "".join(texts_of(ensemble).values()),
        "onnx": lambda ensemble: render_onnx(ensemble),
    }
    try:
        ensemble = Ensemble((FeatureInput(name, "", 3),), (stump([0.0, 1.0], cut=2),), Fraction(0), output="logit")
        text = renders[target](ensemble)
    except ForetailError:
        return
    assert target == "onnx" or name == "__asm__" or name not in text


NESTED = ("[" * 100_000, '{"a":' * 100_000, "[" * 99 + "]" * 99 + "x")
NUMBERS = ("9" * 1_000_000, "1e" + "9" * 1000, "-" * 1000, '"' + "a" * (1 << 20))
JSON = [name for name, reader in READERS.items() if reader.file.endswith(".json")]


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("text", [pytest.param(text, id=text[:3]) for text in (*NESTED, *NUMBERS)])
def test_json_that_is_deep_or_large_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / READERS[name].file).write_text(text)
    with pytest.raises(ForetailError):
        READERS[name].read(tmp_path / READERS[name].file)


def laughs(levels: int = 40) -> str:
    """YAML whose aliases stand for 9 ** levels words."""
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def zip_bomb() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("schema.json", '{"a": "' + "b" * (1 << 20) + '"}')
        with archive.open("0.npy", "w", force_zip64=True) as member:
            for _ in range(1 << 12):
                member.write(bytes(1 << 20))
    return stream.getvalue()


def parquet_bomb(columns: list[str], rows: int) -> bytes:
    """A few kilobytes that become `rows` rows of zeros."""
    stream = io.BytesIO()
    part = pa.table({name: pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([0])) for name in columns})
    with pq.ParquetWriter(stream, part.schema, compression="zstd") as writer:
        writer.write_table(part, row_group_size=rows)
    return stream.getvalue()


BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "zip": ("model.skops", zip_bomb, "load_model_file(path, TWO)"),
    "yaml": ("mine.yaml", lambda: laughs().encode(), "READERS['P4 profile'].read(path)"),
    "npy": (
        "demand.npy",
        lambda: (
            b"\x93NUMPY\x01\x00v\x00"
            + b"{'descr': '<f8', 'fortran_order': False, 'shape': (16000, 16000), }".ljust(118)
        ),
        "read_demand(path)",
    ),
    "parquet of arrivals": (
        "a.parquet",
        lambda: parquet_bomb(["slot", "port"], 40_000_000),
        "READERS['arrivals'].read(path)",
    ),
    "parquet of demand": ("a.parquet", lambda: parquet_bomb(["a", "b"], 40_000_000), "read_demand(path)"),
    "a csv of one line": ("demand.csv", lambda: b"1," * 30_000_000, "read_demand(path)"),
    "gzip under a csv's name": ("demand.csv", lambda: gzip.compress(b"a,b\n" * 10_000_000), "read_demand(path)"),
    "entities in an svg": (
        "a.svg",
        lambda: (
            '<!DOCTYPE svg [<!ENTITY a0 "lol">'
            + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 9}">' for n in range(1, 30))
            + ']><svg xmlns="http://www.w3.org/2000/svg">&a29;</svg>'
        ).encode(),
        "_is_svg(path.read_bytes()) and exit(5)",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_within_bounded_memory(name: str, tmp_path: Path) -> None:
    file, make, call = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from foretail.features.demand.matrix import read_demand\n"
        "from foretail.core.errors import ForetailError\n"
        "from foretail.models.ensemble.model_files import load_model_file\n"
        "from foretail.pipelines.reporting.run_record import _is_svg\n"
        "from tests.fuzz.readers import READERS, TWO\n"
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({FLOOD_BYTES}, {FLOOD_BYTES}))\n"
        "path = Path(sys.argv[1])\n"
        f"try:\n    {call}\n"
        "except ForetailError as error:\n    print(error)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / file],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) <= 1


ADDRESSES = (
    "models:/../../etc/passwd",
    "models:/a/../b",
    "runs:/../../etc",
    "runs:/" + "a" * 32 + "/../../../etc/passwd",
    "models:/a@b@c",
    "models:/%2e%2e/1",
    "file:///etc/passwd",
    "http://evil.example/model",
    "s3://bucket/model",
    "models:/a'; DROP TABLE runs; --/1",
    "models:/a@'; DROP TABLE runs; --",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    from foretail.models.mlflow.tracking import track

    uri = f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"
    with track("drops", {}, uri=uri):
        pass
    return uri


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_lead_nowhere_else(address: str, store: str) -> None:
    with pytest.raises(ForetailError):
        load_ensemble(address, store)


TEXTS = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "{{ config }}", "]]><x>")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("place", ["command", "finished", "config", "versions", "title", "cell", "note"])
def test_a_report_holds_text_and_no_script(text: str, place: str, tmp_path: Path) -> None:
    from foretail.core.digest import write_digest

    (seed,) = READERS["result"].seeds(tmp_path)
    document = json.loads(seed)
    table = document["tables"][0]
    places: dict[str, Callable[[], object]] = {
        "command": lambda: document.update(command=text),
        "finished": lambda: document.update(finished=text),
        "config": lambda: document.update(config={text: {"seed": text}}),
        "versions": lambda: document.update(versions={text: text}),
        "title": lambda: table.update(title=text),
        "cell": lambda: table.update(rows=[[text]]),
        "note": lambda: table.update(notes=[text]),
    }
    places[place]()
    (tmp_path / "result.json").write_text(json.dumps(document))
    write_digest(tmp_path)
    page = render_page([RunRecord.open(tmp_path)])
    for harm in ("<script", "<img src=x", 'href="javascript:'):
        assert harm not in page.lower()
