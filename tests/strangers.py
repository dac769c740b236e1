"""A program of somebody else that listens at a port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@dataclass
class Stranger:
    """Attributes: received: what programs have sent to the port."""

    port: int
    received: list[bytes] = field(default_factory=list)


@contextmanager
def stranger() -> Iterator[Stranger]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Stranger(listener.getsockname()[1])

        def listen() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    made.received.append(connection.recv(1 << 16))
                    connection.sendall(ANSWER)

        threading.Thread(target=listen, daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)
