"""Runs of the simulators, ns-3 and the native network: from a scenario to the driver's JSON, and what a run gives."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from omegaconf import MISSING

from foretail.configs.schema.networks import NativeNetwork, Network
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.digest import check_file, file_digest
from foretail.core.errors import ForetailError
from foretail.models import zoo
from foretail.pipelines.runs.points import Report
from foretail.sim_bridge.builds import SimulatorProgram, policy_identity
from foretail.sim_bridge.native.driver import NATIVE, collect_dataset, run_native
from foretail.sim_bridge.ns3.driver import Ns3Program, run_driver
from foretail.sim_bridge.ns3.messages import Message, assigned, collective, columns, elephants, halves, joined
from foretail.sim_bridge.packets.simulation import PacketRun, Progress
from foretail.sim_bridge.policies import POLICIES, TAKE_RULES
from foretail.sim_bridge.policy_settings import heeded_settings, takes_alpha

if TYPE_CHECKING:
    from foretail.pipelines.runs.points import SoFar

DRIVER_FORMAT = 1


def driver_config(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    *,
    trace: bool,
    counters: bool = False,
    library: Path | None = None,
) -> dict[str, Any]:
    """The driver's document for one run.

    `counters` asks for a log of what switches count for predicted alphas (``features/catalog.py``). `library` is the
    predictor of a policy that asks the stage's exported model; `policy.library` wins over it. ForetailError if
    `counters` is asked of a policy whose alphas cannot be predicted, or if the scenario lacks a setting.
    """
    if counters and not takes_alpha(policy.name):
        raise ForetailError(f"'counters' is for a policy whose alphas can be predicted, which {policy.name} is not")
    document, document_of_policy = dataclasses.asdict(scenario), dataclasses.asdict(policy)
    del document["name"], document["topology"]["kind"]  # the driver knows a star by its lack of spines
    del document["elephants"], document["collective"]  # and of these what they send
    if (missing := _missing(document)) is not None:
        raise ForetailError(f"the scenario lacks {missing}: give it a value")
    document["messages"] = columns(messages_of(scenario, seed))
    own_rules = {name: document_of_policy.pop(name) for name in ("victim", "order")}
    if policy.name == "lqd":
        document["rules"] |= {name: chosen for name, chosen in own_rules.items() if chosen is not None}
    own = policy.library if policy.library is not None else library
    uses_library = policy.predictor == "library" and own is not None
    ends = policy.message_end
    document_of_policy["message_end"] = None if ends is None else str(Path(ends).absolute())
    document.update(
        format=DRIVER_FORMAT,
        seed=seed,
        policy={
            **document_of_policy,
            "library": str(Path(own).absolute()) if uses_library and own else None,
            "rules": zoo.numbers(policy.rules) if policy.name in TAKE_RULES else [],
        },
        trace=trace,
        counters=counters,
    )
    return document


def _missing(settings: Mapping[str, Any]) -> str | None:
    """The first setting that nobody gave, by its path."""
    for name, value in settings.items():
        below = _missing(value) if isinstance(value, dict) else None
        if below is not None or value == MISSING:
            return name if below is None else f"{name}.{below}"
    return None


def messages_of(scenario: Scenario, seed: int) -> list[Message]:
    """The messages of elephants and of collectives that a seed gives."""
    topology, bursts, exchange = scenario.topology, scenario.elephants, scenario.collective
    planned: list[list[Message]] = []
    if bursts.flows_per_server > 0:
        planned.append(
            elephants(
                topology.peers(bursts.destinations),
                bursts.flows_per_server,
                bursts.burst_bytes,
                bursts.idle_ns,
                link_bps=topology.server_link_bps,
                traffic_ns=scenario.traffic_ns,
                seed=seed,
            )
        )
    if exchange.kind is not None:
        members, across = exchange.servers_per_group, topology.across_leaves()
        groups = [across[group * members : (group + 1) * members] for group in range(exchange.groups)]
        if exchange.kind == "permutation":
            groups = [halves(group, seed) for group in groups]
        equal_flows = collective(
            exchange.kind,
            groups,
            exchange.size_bytes,
            repeat=exchange.repeat,
            compute_ns=exchange.compute_ns,
            traffic_ns=scenario.traffic_ns,
            seed=seed,
            channels=exchange.channels,
            spread_ns=exchange.spread_ns,
        )
        if scenario.balancing.name == "ethereal":
            equal_flows = assigned(equal_flows, topology.spines, topology.servers_per_leaf)
        planned.append(equal_flows)
    return joined(*planned)


Where = TypeVar("Where")


class KeepsRuns(Protocol):
    """Settings of what makes runs: where they are kept, and how many are made at the same time."""

    @property
    def store_dir(self) -> str: ...

    @property
    def jobs(self) -> int | None: ...


class Simulates(KeepsRuns, Protocol):
    """Settings of what simulates: the network, too."""

    @property
    def network(self) -> Network: ...

    @property
    def ns3_prefix(self) -> str | None: ...


class Simulator:
    """A simulator of packets of a stage: its program is built when the first run needs it.

    Parameters
    ----------
    program : what simulates
    run : runs a document, with the parameters of :func:`foretail.sim_bridge.ns3.driver.run_driver`
    """

    def __init__(self, program: SimulatorProgram, run: Callable[..., PacketRun]) -> None:
        self.program, self.run = program, run
        self._executable: Path | None = None
        self._building = threading.Lock()

    @functools.cached_property
    def driver_sha256(self) -> str:
        """Digest of the program's sources, the same for all runs of a stage."""
        return self.program.digest()

    def depends_on(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that a run with this document depends on."""
        return {"driver": settings_that_matter(document), **self.program.identity, "driver_code": self.driver_sha256}

    def driver(self, report: Report) -> Path:
        """The executable, built on first use (threads of one stage build it once)."""
        with self._building:
            if self._executable is None:
                program = f"the program of {self.program.words}"
                building = f"building {program}, which takes some minutes once per machine"
                report(0.0, f"finding {program}")
                self._executable = self.program.build(
                    report=lambda done, of: report(0.0, f"{building}: {done} of {of}")
                )
            return self._executable


def native_simulator() -> Simulator:
    """Foretail's own TCP over its links and switches."""
    return Simulator(NATIVE, run_native)


def ns3_simulator(prefix: str | None) -> Simulator:
    """The driver of an ns-3, by its prefix; None: of the Python package."""
    return Simulator(Ns3Program(prefix=prefix), run_driver)


def simulator_of(config: Simulates) -> Simulator:
    """The simulator that settings name."""
    return _simulator(config.network, config.ns3_prefix)


def simulators_of(config: Simulates, networks: Mapping[Where, Network]) -> dict[Where, Simulator]:
    """The simulator of each condition, with the ns-3 that settings name; conditions of a network share one."""
    known = {network.name: _simulator(network, config.ns3_prefix) for network in networks.values()}
    return {where: known[network.name] for where, network in networks.items()}


def _simulator(network: Network, ns3_prefix: str | None) -> Simulator:
    return native_simulator() if isinstance(network, NativeNetwork) else ns3_simulator(ns3_prefix)


def settings_that_matter(document: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's settings on which its output depends.

    Of a policy's settings those count that it heeds; a predictor library and the header of a policy from outside count
    with their content, not their path.
    """
    policy = document["policy"]
    libraries = {name: policy[name] for name in ("library", "message_end")}
    for library in filter(None, libraries.values()):
        check_file(Path(library), "export the predictor again")
    heeded = heeded_settings(policy["name"]) if policy["name"] in POLICIES else list(policy)
    return {
        **document,
        "policy": {
            **{setting: value for setting, value in policy.items() if setting in heeded},
            "name": policy_identity(policy["name"]),
            **{name: library and file_digest(Path(library)) for name, library in libraries.items()},
        },
    }


def simulate_dataset(
    document: Mapping[str, Any], scenario: Scenario, folder: Path, simulator: Simulator, report: Report
) -> None:
    """Simulate with a trace and write the labelled dataset to `folder`."""
    collect_dataset(
        document,
        folder,
        scenario=asdict(scenario),
        progress=reporting(report),
        executable=simulator.driver(report),
        simulate=simulator.run,
    )


@contextmanager
def scratch_run(document: Mapping[str, Any], simulator: Simulator, so_far: SoFar) -> Iterator[PacketRun]:
    """A run without a trace in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        yield simulate_flows(document, Path(name), simulator, lambda done, words: so_far(words))


def simulate_flows(document: Mapping[str, Any], folder: Path, simulator: Simulator, report: Report) -> PacketRun:
    """Simulate without a trace; flows, occupancy and summary go to `folder`."""
    executable = simulator.driver(report)
    return simulator.run(document, folder, reporting(report), executable=executable)


def leaf_buffers(run: PacketRun) -> dict[int, int]:
    """Buffer in bytes of every leaf, by switch number."""
    return {
        number: switch["buffer_bytes"]
        for number, switch in enumerate(run.summary["switches"])
        if switch["role"] == "leaf"
    }


def counters(run: PacketRun) -> dict[str, int]:
    """Counters summed over all switches: dropped data packets by reason, predictions, marks, invariants.

    With lossless queues also their drops and pauses, and the time in which those at ingress were paused, or could be.
    """
    switches = run.summary["switches"]
    total = {
        f"{kind}.{reason}": sum(switch[kind][reason]["packets"] for switch in switches)
        for kind in ("data_drops", "control_drops")
        for reason in switches[0][kind]
    }
    total |= {name: sum(switch[name] for switch in switches) for name in ("asked", "marked", "threshold_deficits")}
    total["data_packets"] = sum(switch["data_in"]["packets"] for switch in switches)
    total["flipped_predictions"] = run.summary["flipped_predictions"]
    if lossless := run.settings().get("queues", {}).get("lossless"):
        counted = [switch["lossless"] for switch in switches]
        total["lossless_drops"] = sum(one["drops"]["packets"] for one in counted)
        total |= {name: sum(one[name] for one in counted) for name in ("pauses", "paused_ns")}
        queues = len(lossless) * sum(len(switch["port_rates_bps"]) for switch in switches)
        total["pausable_ns"] = queues * run.summary["end_ns"]
    return total


def rules_in_force(run: PacketRun) -> dict[str, list[dict[str, Any]]]:
    """The rules by which each switch decided in turn, each with the time from which on it did."""
    rules = zoo.named(run.settings()["policy"].get("rules", []))
    return {
        f"switch {number}": [{"time_ns": start, "rule": rules[place]} for start, place in switch["rules"]]
        for number, switch in enumerate(run.summary["switches"])
        if "rules" in switch
    }


def packets_per_cpu_second(run: PacketRun) -> float | None:
    """Data packets that arrived at leaves, per CPU second of the simulation."""
    seconds = run.summary["simulation_cpu_seconds"]
    return run.summary["leaf_data_packets"] / seconds if seconds > 0 else None


def reporting(report: Report) -> Callable[[Progress], None]:
    """Function that passes the progress of a run on to `report`."""

    def passed_on(progress: Progress) -> None:
        done = progress.simulated_ns / progress.end_ns
        rate = progress.simulated_ns / 1e6 / max(progress.wall_seconds, 1e-9)
        report(
            done,
            f"{progress.simulated_ns / 1e6:.1f} of {progress.end_ns / 1e6:.0f} ms simulated, {rate:.1f} ms/s, "
            f"{progress.flows} of {progress.planned_flows} flows",
        )

    return passed_on
