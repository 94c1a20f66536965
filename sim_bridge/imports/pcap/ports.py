"""Which port of the switch a destination leads to: a table of prefixes."""

from __future__ import annotations

import csv
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from foretail.core.errors import ForetailError

_COLUMNS = ["prefix", "port"]
Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class PortTable:
    """Prefixes and their ports; the longest prefix that holds a destination decides."""

    path: Path  #: the file it was read from
    port_of: dict[tuple[int, int, int], int]  #: by (version, prefix length, network as a number)

    @classmethod
    def read(cls, path: Path, ports: int) -> PortTable:
        """Read a CSV file with the columns ``prefix,port``, such as ``10.0.1.0/24,0``.

        ForetailError if the file cannot be read, or a line is not a prefix with a port of the switch, or repeats one.
        """
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = list(csv.reader(file))
        except OSError as error:
            raise ForetailError(f"cannot read the table of ports {path}: {error.strerror}; give another file") from None
        except (UnicodeDecodeError, csv.Error):
            raise ForetailError(f"the table of ports {path} is not a CSV file: give one with prefix,port") from None
        if not rows or rows[0] != _COLUMNS:
            first = ",".join(rows[0])[:60] if rows else "nothing"
            raise ForetailError(
                f"the table of ports {path} begins with {first}: let its first line be prefix,port alone"
            )
        port_of: dict[tuple[int, int, int], int] = {}
        for line, row in enumerate(rows[1:], 2):
            try:
                text, number = row
                prefix, port = ipaddress.ip_network(text), int(number)
            except ValueError:
                raise ForetailError(
                    f"line {line} of the table of ports {path} is not a prefix with a port: write it as 10.0.1.0/24,0, "
                    "and a default route as 0.0.0.0/0 and ::/0"
                ) from None
            if not 0 <= port < ports:
                raise ForetailError(
                    f"line {line} of the table of ports {path} names port {port}, but the switch has ports 0 to "
                    f"{ports - 1}: correct it or pcap.ports"
                )
            if port_of.setdefault(_key(prefix), port) != port:
                raise ForetailError(f"line {line} of the table of ports {path} has a prefix again: keep one of the two")
        return cls(path, port_of)

    def ports(self, destinations: Iterable[bytes]) -> list[int | None]:
        """The port of every destination (4 or 16 bytes); None where no prefix holds it."""
        lengths = {
            version: sorted({length for v, length, _ in self.port_of if v == version}, reverse=True)
            for version in (4, 6)
        }
        return [self._port(destination, lengths) for destination in destinations]

    def _port(self, destination: bytes, lengths: dict[int, list[int]]) -> int | None:
        version, bits = (4, 32) if len(destination) == 4 else (6, 128)
        address = int.from_bytes(destination)
        for length in lengths[version]:
            port = self.port_of.get((version, length, address >> (bits - length)))
            if port is not None:
                return port
        return None


def _key(prefix: Prefix) -> tuple[int, int, int]:
    bits = prefix.max_prefixlen - prefix.prefixlen
    return prefix.version, prefix.prefixlen, int(prefix.network_address) >> bits
