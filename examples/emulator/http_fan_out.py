"""Ask all other hosts for a page at once over HTTP: ``foretail evaluate network=emulator -- python3`` and this file."""

import http.client
import http.server
import os
import time
from concurrent.futures import ThreadPoolExecutor

PORT = 8000
PAGE = bytes(200_000)

host = int(os.environ["FORETAIL_HOST"])
addresses = os.environ["FORETAIL_ADDRESSES"].split()
factor = int(os.environ["FORETAIL_FACTOR"])


class Pages(http.server.BaseHTTPRequestHandler):
    """Gives everybody the same page, and says nothing of it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the page."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def connected(address: str) -> http.client.HTTPConnection:
    """Return a connection to a server, which may not have started yet."""
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection(address, PORT)
            connection.connect()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            return connection
    raise SystemExit(f"nobody answers on {address}")


def fetch(connection: http.client.HTTPConnection) -> float:
    """Return how long a page took, in us of the network."""
    started = time.monotonic()
    connection.request("GET", "/")
    assert connection.getresponse().read() == PAGE
    return (time.monotonic() - started) / factor * 1e6


if host > 0:
    http.server.ThreadingHTTPServer(("", PORT), Pages).serve_forever()
servers = [connected(address) for address in addresses[1:]]
with ThreadPoolExecutor(len(servers)) as pool:
    for query in range(5):
        times = sorted(pool.map(fetch, servers))
        print(f"query {query}: first page after {times[0]:.0f} us, last after {times[-1]:.0f} us", flush=True)
