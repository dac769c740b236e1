"""Programs without the token that try to keep the server busy, for `bench soak`: each in its own process, on one core.

An attacker reads orders from its standard input, one byte each: it starts, or it stops and prints a `Sent` as JSON. It
ends with its standard input. It connects to 127.0.0.1 only, to the port of the server that the measurement started.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

HOST = "127.0.0.1"
BYTES = 10_000_000  # a second, of addresses and headers
CONNECTIONS = 200  # a second
KEPT = 2000  # connections that an attacker keeps open at most
PIECE = 16_384  # bytes a send
KINDS = {"bytes": "10 MB of addresses and headers a second", "connections": "200 connections a second"}
START, STOP = b"+", b"-"  # orders
STEP = 0.01  # seconds between two looks at the clock


@dataclass(frozen=True)
class Sent:
    """What an attacker has sent in so many seconds, and the seconds of its core that this took."""

    bytes: int
    connections: int
    seconds: float
    processor: float


class Attacker:
    """One attacker's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self) -> None:
        self._order(START)

    def stop(self) -> Sent:
        self._order(STOP)
        assert self._process.stdout
        return Sent(**json.loads(self._process.stdout.readline()))

    def _order(self, order: bytes) -> None:
        assert self._process.stdin
        os.write(self._process.stdin.fileno(), order)


@contextmanager
def attacker(kind: str, port: int) -> Iterator[Attacker]:
    """Context manager: an attacker that waits for its start. `kind` is one of `KINDS`."""
    command = [sys.executable, "-m", __name__, kind, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()  # it is ready
        yield Attacker(process)
        process.communicate()  # closes its input


class _Attack:
    """Attributes: sent, connections: bytes sent and connections made since the start."""

    def __init__(self, port: int) -> None:
        self.port, self.sent, self.connections = port, 0, 0
        self._open: deque[socket.socket] = deque()

    def connected(self) -> socket.socket | None:
        """A new connection; None if the server takes none now."""
        self.connections += 1
        connection = socket.socket()
        connection.setblocking(False)
        try:
            connection.connect_ex((HOST, self.port))
        except OSError:
            connection.close()
            return None
        self._open.append(connection)
        if len(self._open) > KEPT:
            self._open.popleft().close()
        return connection

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def step(self, seconds: float) -> None:
        """Does what is due `seconds` after the start."""
        raise NotImplementedError


class _Bytes(_Attack):
    """Sends addresses and headers without end, in turn, each on a connection until the server closes it."""

    _connection: socket.socket | None = None

    def step(self, seconds: float) -> None:
        while self.sent < BYTES * seconds:
            if self._connection is None:
                self._connection = self.connected()
                address = self.connections % 2 == 0
                self._head = b"GET /?" if address else f"GET / HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n".encode()
                self._more = b"a" * PIECE if address else b"X-Header: some words that fill it\r\n" * (PIECE // 35)
            if self._connection is None or not select.select([], [self._connection], [], 0)[1]:
                return  # the buffers are full, or the connection is not made yet
            try:
                self.sent += self._connection.send(self._head or self._more)
                self._head = b""
            except OSError:
                self._connection.close()
                self._open.remove(self._connection)
                self._connection = None


class _Connections(_Attack):
    """Opens connections and leaves them: some without a word, some with half a request, some with a whole one."""

    def step(self, seconds: float) -> None:
        request = f"GET /api/status HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n\r\n".encode()
        while self.connections < CONNECTIONS * seconds:
            connection = self.connected()
            if connection is not None and self.connections % 3:
                with suppress(OSError):
                    self.sent += connection.send(request[: len(request) // (self.connections % 3)])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _main(kind: str, port: int) -> None:
    if hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    _say("ready")
    on, began, used, attack = False, 0.0, 0.0, _Attack(port)
    while True:
        if select.select([0], [], [], STEP if on else None)[0]:
            order = os.read(0, 1)
            attack.close()
            if not order:
                return
            if order == STOP:
                said = Sent(attack.sent, attack.connections, time.perf_counter() - began, time.process_time() - used)
                _say(json.dumps(vars(said)))
            on, began, used = order == START, time.perf_counter(), time.process_time()
            attack = {"bytes": _Bytes, "connections": _Connections}[kind](port)
        elif on:
            attack.step(time.perf_counter() - began)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
