"""What a dataset does when the process, the disk or the files fail."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretail.core.digest import DIGEST_FILE, write_digest
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import VERSION_KEY, Manifest, PartFile
from foretail.features.dataset.writer import write_dataset
from tests.traces import RUN, make_arrivals, write_trace

pytestmark = pytest.mark.slow

PART = "rows/part-00000.parquet"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "run", make_arrivals(3000)).path


def _refused(path: Path, message: str, verify: bool = True) -> None:
    with pytest.raises(ForetailError, match=message) as caught:
        Dataset.open(path, verify)
    assert str(path) in str(caught.value)


def _flip_byte(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    _refused(
        tmp_path / "absent", r"absent is not a dataset, manifest\.json cannot be read \(No such file or directory\)"
    )
    _refused(tmp_path, r"is not a dataset, manifest\.json cannot be read")
    (tmp_path / "result.json").write_text("{}")
    _refused(tmp_path, r"give one of the datasets that the result\.json of this run lists")


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("part", [PART, "control/part-00000.parquet"])
def test_a_missing_part_is_refused(path: Path, part: str, verify: bool) -> None:
    (path / part).unlink()
    _refused(path, rf"{part} is missing though the manifest lists it", verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("kept", [0, 3, 1000, -1])
def test_a_truncated_part_is_refused(path: Path, kept: int, verify: bool) -> None:
    (path / PART).write_bytes((path / PART).read_bytes()[:kept])
    _refused(path, rf"{PART} is truncated or no Parquet file", verify)


def test_a_flipped_byte_anywhere_is_refused(path: Path) -> None:
    size = (path / PART).stat().st_size
    for at in range(0, size, size // 50):
        _flip_byte(path / PART, at)
        with pytest.raises(ForetailError, match=PART):
            Dataset.open(path)
        _flip_byte(path / PART, at)
    Dataset.open(path)


def test_damage_that_was_not_verified_is_an_error_of_the_reader(path: Path) -> None:
    with pq.ParquetFile(path / PART) as file:
        column = file.metadata.row_group(0).column(0)
        first_page = column.data_page_offset
    content = bytearray((path / PART).read_bytes())
    content[first_page : first_page + column.total_compressed_size] = bytes(column.total_compressed_size)
    (path / PART).write_bytes(content)
    dataset = Dataset.open(path, verify=False)
    with pytest.raises(ForetailError, match=r"^cannot read .*rows \(.*\): collect the trace again$"):
        dataset.frame(["arrival"])
    with pytest.raises(ForetailError, match=r"^cannot read "):
        list(dataset.arrivals())


def _replace_part(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite the first part, hash and manifest included: only its inside is wrong."""
    pq.write_table(change(pq.read_table(path / PART)), path / PART)
    old = Manifest.from_json((path / "manifest.json").read_bytes(), "manifest.json")
    sha256 = hashlib.sha256((path / PART).read_bytes()).hexdigest()
    files = [PartFile(f.path, f.rows, sha256 if f.path == PART else f.sha256) for f in old.files]
    (path / "manifest.json").write_text(Manifest.of(RUN, files, old.drops).to_json())
    write_digest(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table.replace_schema_metadata({VERSION_KEY: b"1"}),
            rf"{PART} has schema version 1 but this Foretail reads version 2",
        ),
        (lambda table: table.replace_schema_metadata(None), rf"{PART} has schema version none but"),
        (
            lambda table: table.drop_columns(["lqd_drop"]),
            rf"{PART} has no column lqd_drop of schema version 2",
        ),
        (
            lambda table: table.drop_columns(["port", "switch"]),
            rf"{PART} has no column switch, port of schema version 2",
        ),
        (
            lambda table: table.set_column(
                1, pa.field("time_ns", pa.float64(), False), table["time_ns"].cast(pa.float64())
            ),
            rf"{PART} has other columns than schema version 2",
        ),
        (lambda table: table.slice(1), rf"{PART} has \d+ rows where the manifest says \d+"),
    ],
)
def test_a_part_with_a_wrong_inside_is_refused(
    path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    _replace_part(path, change)
    _refused(path, message)


@pytest.mark.parametrize(
    "change",
    [{"seed": 5}, {"cell_bytes": 128}, {"rules": {"counting": "uncounted", "tie": "lowest_port", "victim": "tail"}}],
)
def test_settings_of_the_manifest_that_still_make_sense_are_refused_when_changed(
    path: Path, change: dict[str, object]
) -> None:
    plain = json.loads((path / "manifest.json").read_text())
    changed = json.dumps(plain | change, indent=1)
    assert json.loads(changed) != plain
    (path / "manifest.json").write_text(changed)
    with pytest.raises(ForetailError, match=r"manifest\.json"):
        Dataset.open(path)


def test_a_dataset_without_its_digest_is_refused(path: Path) -> None:
    (path / DIGEST_FILE).unlink()
    _refused(path, r"has no digest\.json, so that nobody can tell whether it is whole: remove the dataset")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_during_the_write_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with write_dataset(tmp_path / "run", RUN) as writer:
            writer.write(*make_arrivals(200_000))
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_dataset_is_not_overwritten(path: Path) -> None:
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(ForetailError, match=r"run exists already: remove it or choose another folder"):
        write_trace(path, make_arrivals(10))
    assert (path / "manifest.json").read_bytes() == before


def test_the_slower_of_two_writers_is_told_and_cleans_up(tmp_path: Path) -> None:
    fast = make_arrivals(50)

    def write_slowly() -> None:
        with write_dataset(tmp_path / "run", RUN) as slow:
            slow.write(*make_arrivals(100))
            write_trace(tmp_path / "run", fast)

    with pytest.raises(ForetailError, match=r"^cannot write .*run: Directory not empty"):
        write_slowly()
    assert [folder.name for folder in tmp_path.iterdir()] == ["run"]
    replayed = [chunk["size_bytes"].tolist() for chunk in Dataset.open(tmp_path / "run").arrivals()]
    assert replayed == [fast.records["size_bytes"].tolist()]


WRITE_FOREVER = """
import sys
from pathlib import Path
from foretail.features.dataset.writer import write_dataset
from tests.traces import RUN, make_arrivals
arrivals = make_arrivals(200_000)
length = arrivals.records["time_ns"][-1]
with write_dataset(Path(sys.argv[1]), RUN) as writer:
    while True:
        writer.write(*arrivals)
        arrivals.records["time_ns"] += length
        arrivals.records["fate_time_ns"] += length
        print(writer.arrivals, flush=True)
"""


def test_a_killed_write_leaves_no_dataset_and_its_remains_go_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, target], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(2):
            process.stdout.readline()
        assert len(list(tmp_path.glob(".run.partial-*/rows/*.parquet"))) == 1
        process.send_signal(signal.SIGKILL)
        process.stdout.read()
    assert not target.exists()
    _refused(target, "is not a dataset")
    (remains,) = tmp_path.iterdir()
    _refused(remains, "is not a dataset")
    write_trace(tmp_path / "other", make_arrivals(10))
    assert [folder.name for folder in tmp_path.iterdir()] == ["other"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from foretail.core.errors import ForetailError
from tests.traces import make_arrivals, write_trace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    write_trace(Path(sys.argv[1]), make_arrivals(int(sys.argv[3])))
except ForetailError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("limit_bytes", "arrivals"),
    [
        (1_000_000, 200_000),  # in the middle of a row group
        (2_000, 1000),  # in the last row group
        (1_000, 0),  # in the manifest
    ],
)
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, limit_bytes: int, arrivals: int) -> None:
    target = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, target, str(limit_bytes), str(arrivals)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout == (
        f"cannot write {target}: File too large; make room there or choose a folder on another disk\n"
    )
    assert list(tmp_path.iterdir()) == []
