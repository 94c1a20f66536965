"""All other hosts send to host 0: ``foretail evaluate network=emulator -- python3``, this file, and how long, in ms.

Host 0 prints what each of them got in the second half, in Gbit/s of payload and of the network.
"""

import os
import socket
import sys
import threading
import time

PORT = 9000

host = int(os.environ["FORETAIL_HOST"])
addresses = os.environ["FORETAIL_ADDRESSES"].split()
factor = int(os.environ["FORETAIL_FACTOR"])
seconds = float(sys.argv[1]) / 1e3 * factor


def with_control(chosen: socket.socket) -> socket.socket:
    """A socket with ``network.control``, which is not the kernel's default; what a listener accepts inherits it."""
    chosen.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, os.environ["FORETAIL_CONTROL"].encode())
    return chosen


def send() -> None:
    """Send to host 0 until it ends, which may not have started yet."""
    for _ in range(600):
        try:
            connection = with_control(socket.create_connection((addresses[0], PORT)))
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            break
    else:
        raise SystemExit("host 0 does not answer")
    block = bytes(1 << 16)
    while True:
        connection.sendall(block)


def receive() -> None:
    """Count what comes from each sender between the middle and the end."""
    server = with_control(socket.create_server(("", PORT), backlog=len(addresses)))
    got = dict.fromkeys(addresses[1:], 0)

    def read(connection: socket.socket, sender: str) -> None:
        while data := connection.recv(1 << 16):
            got[sender] += len(data)

    for _ in addresses[1:]:
        connection, (sender, _) = server.accept()
        threading.Thread(target=read, args=(connection, sender), daemon=True).start()
    time.sleep(seconds / 2)
    began, before = time.monotonic(), dict(got)
    time.sleep(seconds / 2)
    passed = (time.monotonic() - began) / factor
    for number, sender in enumerate(addresses[1:], 1):
        print(f"host {number}: {(got[sender] - before[sender]) * 8 / passed / 1e9:.3f} Gbit/s", flush=True)


receive() if host == 0 else send()
