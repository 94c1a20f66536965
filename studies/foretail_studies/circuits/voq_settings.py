"""Settings of the experiments on virtual output queues of racks with circuits."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.emulation import ON_LOSSES, Emulation
from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.fields import part, setting
from foretail.configs.schema.network.racks import MOST_HOSTS, MOST_VOQ_PACKETS, SHARED_POLICIES, RackTraffic
from foretail.core.errors import ForetailError


@dataclass
class PublishedUse:
    """What others measured."""

    utilisation_percent: float = setting(MISSING, "Use of the circuit.", at_least=0, at_most=100)
    p50_us: float = setting(MISSING, "Median latency of data packets.", at_least=0)
    p99_us: float = setting(MISSING, "99th percentile of the latency of data packets.", at_least=0)


@dataclass
class VoqSettings(ExperimentSettings, RackTraffic):
    """Long flows from one rack to others: every capacity of VOQs, way to resize them, and shared buffer is a run."""

    emulation: Emulation = part(Emulation, "Settings of the emulator.")
    against_ns3: bool = setting(False, "Simulate the same in ns-3, and compare use and latencies.")
    model: str | None = setting(None, "Model, as in export, that the policy credence asks.")
    train: list[str] = setting(
        [],
        "With model=null, overrides of foretail train, which trains the model that the policy credence asks.",
    )
    seed: int = setting(1, "Seed of the flows' starts.", at_least=1, at_most=2**31 - 1)
    static_packets: list[int] = setting(
        [], "Capacities of a VOQ that stays as it is.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    small_packets: int = setting(
        16, "Resizing: capacity of a VOQ without a circuit.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    resized_packets: int = setting(
        50, "Resizing: capacity of a VOQ shortly before and during the circuit.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    ahead_ns: list[int] = setting(
        [], "Resizing: time before the circuit at which the capacity grows.", at_least=0, at_most=10**12
    )
    policies: list[str] = setting(
        [], "Policies over a buffer that the VOQs of a rack share, instead of capacities.", one_of=SHARED_POLICIES
    )
    shared_packets: list[int] = setting(
        [], "Policies: sizes of that buffer, in full packets.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    alpha: float = setting(1.0, "Policies: alpha of dt.", above=0, at_most=1024)
    attempts: int = setting(3, "Number of times that a run that was late is tried in all.", at_least=1, at_most=100)
    weeks: int = setting(MISSING, "Length of a run, in periods of the schedule.", at_least=2, at_most=10_000)
    ns3_weeks: int | None = setting(
        None,
        "With against_ns3, the length of a run in ns-3, which is fast; null means weeks.",
        at_least=2,
        at_most=10_000,
    )
    skipped_weeks: int = setting(1, "Number of weeks at either end that do not count.", at_least=0, at_most=1000)
    published: dict[str, PublishedUse] = setting(
        {}, "Published figures by the name of the run, such as static_16 or resize_300000ns."
    )
    published_by: str = setting("", "Source of the published figures.")

    def check(self, where: str) -> None:
        """Raise ForetailError on flows that go nowhere, a resize that is none, and runs that are too short."""
        ExperimentSettings.check(self, where)
        RackTraffic.check(self, where)
        self._check_emulation()
        hosts = self.fabric.hosts_per_rack * (1 + len(self.destination_racks))
        if hosts > MOST_HOSTS:
            raise ForetailError(
                f"the experiment has {hosts} hosts, and a process each: lower fabric.hosts_per_rack or name fewer "
                f"racks, for at most {MOST_HOSTS}"
            )
        if not (self.static_packets or self.ahead_ns or self.policies):
            raise ForetailError("the experiment compares nothing: give static_packets, ahead_ns or policies")
        if bool(self.policies) != bool(self.shared_packets):
            raise ForetailError("policies and shared_packets go together: give both, or neither of them")
        if self.resized_packets < self.small_packets:
            raise ForetailError(
                f"resized_packets = {self.resized_packets} is less than small_packets = "
                f"{self.small_packets}: a VOQ grows for its circuit"
            )
        for name, weeks in (("weeks", self.weeks), ("ns3_weeks", self.ns3_weeks)):
            if weeks is not None and weeks <= 2 * self.skipped_weeks + 1:
                raise ForetailError(
                    f"{name} = {weeks} leaves none to count without skipped_weeks = "
                    f"{self.skipped_weeks} at either end: raise {name} to {2 * self.skipped_weeks + 2} or more"
                )
        if self.published and not self.published_by:
            raise ForetailError("published has figures of nobody: say whose in published_by")

    @property
    def asks(self) -> bool:
        """Whether a policy asks a predictor."""
        return "credence" in self.policies

    def _check_emulation(self) -> None:
        """Raise ForetailError on a comparison that cannot be, and on a predictor that nobody asks."""
        self.emulation.require_timeout("emulation", "min_rto_ns", self.min_rto_ns)
        for name, control in self.emulation.controls("emulation").items():
            if control == "dctcp":
                raise ForetailError(f"{name} is dctcp, and switches of racks do not mark: choose another")
        if self.against_ns3 and self.emulation.background_control not in (None, self.emulation.control):
            raise ForetailError("against_ns3 compares one transport: leave emulation.background_control out")
        if self.against_ns3 and self.emulation.control not in ON_LOSSES:
            raise ForetailError(
                f"against_ns3 compares Linux's {self.emulation.control} with ns-3's, which has none for racks: set "
                f"emulation.control to {' or '.join(ON_LOSSES)}"
            )
        if self.asks and self.model is None and not self.train:
            raise ForetailError(
                "policy credence asks a predictor and there is none: give model=FILE, train=[...] or the policy "
                "credence_accept"
            )
        if not self.asks and (self.model is not None or self.train):
            raise ForetailError("model and train are for the policy credence, which does not run: leave them out")
        if self.model is not None and self.train:
            raise ForetailError("model and train are both given: leave one of the two out")
        if self.ns3_prefix is not None and not (self.against_ns3 or self.train):
            raise ForetailError("ns3_prefix names an ns-3, which nothing here uses: leave it out")
