"""The manifest of a dataset: everything needed to know what its rows mean and to make them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.features.catalog import FEATURES, PAPER_FEATURES, STUDY_FEATURES, feature
from foretail.features.dataset.schema import SCHEMA_VERSION, Kind
from foretail.features.feature import VALUE_BITS, State, Unit

MANIFEST_NAME = "manifest.json"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

_NO_TRAFFIC = ("name", "rules", "features")
"""Parts of a scenario that its packets do not depend on."""

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class SwitchGeometry:
    """One switch: ports, shared buffer in bytes, rate of every port in bit/s."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    ports: Annotated[int, Field(gt=0, lt=1 << 15)]
    buffer_bytes: Positive
    port_rates_bps: tuple[Positive, ...]


Victim = Literal["tail", "tail_kept", "head", "random", "spare_first_rtt", "most_left"]


@dataclass(frozen=True)
class Rules:
    """The push-out rule that labels depend on: whose decisions they are, and what LQD leaves open."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    counting: Literal["counted", "uncounted"]
    tie: Literal["lowest_port", "highest_port"]
    victim: Victim
    order: Literal["longest_queue", "lower_classes_first", "any_queue"] = "longest_queue"
    oracle: Literal["lqd", "occamy"] = "lqd"
    oracle_alpha: Annotated[float, Field(gt=0)] = 8.0

    @property
    def takes_tails(self) -> bool:
        """Whether labels are those of LQD from the tail of the longest queue, whose freedom is known."""
        return (self.oracle, self.victim, self.order) == ("lqd", "tail", "longest_queue")

    def require_lqd(self, what: str) -> None:
        """Raise ForetailError unless labels are LQD's; `what` knows no other."""
        if self.oracle != "lqd":
            raise ForetailError(f"{what} knows no labels but those of LQD: set rules.oracle=lqd, not {self.oracle}")


@dataclass(frozen=True)
class LosslessQueues:
    """Queues of a run that may not lose a packet, and how switches pause those who send to them."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    queues: Annotated[tuple[Count, ...], Field(min_length=1)]  #: of every port
    alpha: Annotated[float, Field(gt=0)]  #: at ingress, of policies without a rule of their own
    xon_bytes: Count
    xon_offset_bytes: Count
    makes_room: Literal["longer_queues", "any_queue", "no_queue"]
    headroom_bytes: tuple[Count, ...]  #: by switch, part of its buffer


@dataclass(frozen=True)
class FeatureDefinition:
    """A feature as this run computed it; `params` as the predictor ABI carries it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    state: State
    unit: Unit | Literal["bytes"]
    bits: Positive
    params: str


@dataclass(frozen=True)
class PartFile:
    """One Parquet file: path relative to the dataset folder, rows, sha256 of its bytes."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    path: Annotated[str, Field(pattern=r"^(rows|control|pauses)/part-\d{5}\.parquet$")]
    rows: Positive
    sha256: Sha256


@dataclass(frozen=True)
class Run:
    """What is known about a run before its first row."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    scenario: dict[str, Any]  #: the resolved scenario, JSON values only
    policy: dict[str, Any]  #: the resolved buffer policy of the run, JSON values only
    seed: Count
    switches: Annotated[tuple[SwitchGeometry, ...], Field(min_length=1)]  #: indexed by the ``switch`` column
    rules: Rules
    cell_bytes: Positive  #: bytes per buffer cell, a power of two
    average_shift: Annotated[int, Field(ge=0, le=62)]  #: averages run over ``2**average_shift`` ns, 0 to 62
    versions: dict[str, str]  #: of everything that made the rows
    lossless: LosslessQueues | None = field(default=None, kw_only=True)  #: None where every queue may lose packets


@dataclass(frozen=True)
class Manifest(Run):
    """A run and what is on disk of it; `rows`, `drops` and `control_rows` are counts of arrivals."""

    schema_version: int
    kind: Kind
    features: tuple[FeatureDefinition, ...]
    rows: Count
    drops: Count
    control_rows: Count
    files: tuple[PartFile, ...]
    content_sha256: Sha256

    @classmethod
    def of(cls, run: Run, files: Iterable[PartFile], drops: int, kind: Kind = "trace") -> Self:
        """Describe the finished parts of `run`; of `drops` rows the label says drop, or that dropping is cheaper."""
        files = tuple(files)
        return cls(
            **{f.name: getattr(run, f.name) for f in fields(Run)},
            schema_version=SCHEMA_VERSION,
            kind=kind,
            features=definitions(run.cell_bytes, run.average_shift, kind),
            rows=_rows(files, "rows"),
            drops=drops,
            control_rows=_rows(files, "control"),
            files=files,
            content_sha256=content_sha256(files),
        )

    def to_json(self) -> str:
        """Return the manifest as indented JSON; raise :class:`ForetailError` if the run holds anything JSON cannot."""
        try:
            said = {name: value for name, value in asdict(self).items() if name != "lossless" or value is not None}
            return json.dumps(said, indent=1, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise ForetailError(f"the run cannot be described in a manifest: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes, source: Path | str) -> Self:
        """Read and check a manifest; `source` is the name that errors use.

        ForetailError naming `source` and the key that is missing, unknown, of the wrong type or inconsistent with the
        others.
        """
        try:
            plain = parse_json(text)
        except ValueError as error:
            raise ForetailError(f"{source} is not valid JSON ({error}): collect the trace again") from None
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if version is not None and version != SCHEMA_VERSION:
            raise ForetailError(
                f"{source} has schema_version {version} but this Foretail reads version {SCHEMA_VERSION}:"
                " collect the trace again or use the Foretail that wrote it"
            )
        try:
            manifest = TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            key = ".".join(map(str, first["loc"])) or "the top level"
            raise ForetailError(f"{source} is not a valid manifest at {key}: {first['msg']}") from None
        wrong = manifest._inconsistency()
        if wrong:
            raise ForetailError(f"{source} contradicts itself at {wrong}: collect the trace again")
        return manifest

    def _inconsistency(self) -> str | None:
        """Return the first key that contradicts another one, or None."""
        checks = {
            "switches.port_rates_bps": all(len(s.port_rates_bps) == s.ports for s in self.switches),
            "lossless": (self.lossless is not None) == (self.kind == "lossless_trace")
            and (self.lossless is None or len(self.lossless.headroom_bytes) == len(self.switches)),
            "cell_bytes": self.cell_bytes & (self.cell_bytes - 1) == 0,
            "features": self.features == definitions(self.cell_bytes, self.average_shift, self.kind),
            "rows": self.rows == _rows(self.files, "rows"),
            "control_rows": self.control_rows == _rows(self.files, "control"),
            "drops": self.drops <= self.rows,
            "content_sha256": self.content_sha256 == content_sha256(self.files),
        }
        return next((key for key, holds in checks.items() if not holds), None)


def definitions(cell_bytes: int, average_shift: int, kind: Kind = "trace") -> tuple[FeatureDefinition, ...]:
    """Return the catalog as a run with these two constants computes it.

    Rows in order of fate have the paper's features in the arithmetic of the simulator that wrote them: bytes, averages
    that move with departures. Their `params` say so, so that no switch takes a model of them for one of its own.
    """
    if kind == "rows_in_order_of_fate":
        return tuple(
            FeatureDefinition(
                name,
                feature(name).state,
                "bytes",
                VALUE_BITS,
                f"unit=bytes,{'average=credence_artifact,' if feature(name).averaged else ''}cell_bytes={cell_bytes}",
            )
            for name in PAPER_FEATURES
        )
    return tuple(
        FeatureDefinition(f.name, f.state, f.unit, f.bits, f.params(cell_bytes, average_shift))
        for f in (*FEATURES, *STUDY_FEATURES)
    )


def content_sha256(files: Iterable[PartFile]) -> str:
    """Return the content hash: sha256 over the hexadecimal sha256 of the files, in order."""
    return hashlib.sha256("".join(f.sha256 for f in files).encode()).hexdigest()


def traffic_sha256(run: Run) -> str:
    """Return the identity of the traffic that was offered: of scenario and seed, whatever was done with the packets."""
    return traffic_sha256_of(run.scenario, run.seed)


def traffic_sha256_of(scenario: Mapping[str, Any], seed: int) -> str:
    """The same for a scenario, JSON-like as manifests have it, and a seed."""
    heeded = {key: value for key, value in scenario.items() if key not in _NO_TRAFFIC}
    return hashlib.sha256(json.dumps([heeded, seed], sort_keys=True).encode()).hexdigest()


def _rows(files: Iterable[PartFile], table: str) -> int:
    return sum(f.rows for f in files if f.path.startswith(f"{table}/"))


_READ: dict[tuple[Path, int, int], str] = {}
"""sha256 of files already read by this process, by path, size and modification time."""


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file; one that is unchanged since this process last read it is not read again."""
    status = path.stat()
    key = (path.absolute(), status.st_size, status.st_mtime_ns)
    if key not in _READ:
        with path.open("rb") as file:
            _READ[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _READ[key]
