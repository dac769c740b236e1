"""What a connection may take of the server, whoever opened it: memory, time and descriptors."""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.web.security import connections
from app.web.security.connections import HEAD, HEADERS, PIPELINED
from app.wire import refusals
from tests.app.site import Site
from tests.app.web.security.test_guard import as_another_user, as_root, linux
from tests.app.web.test_server import asked, child
from tests.fake_drafts import Server
from tests.waiting import until

WAIT = 20  # seconds until a test gives up
SENT = 30_000_000  # bytes of a request without end; the buffers of the kernel take a few million before it is noticed


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT)


def received(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def request(site: Site, path: str = "/api/status", *lines: str, method: str = "GET", token: bool = False) -> bytes:
    head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{site.port}", *lines]
    if token:
        head.append(f"Authorization: Bearer {site.access.token}")
    return "\r\n".join([*head, "", ""]).encode()


def open_ones(sockets: list[socket.socket]) -> list[socket.socket]:
    """Those that the server has not closed."""
    readable, _, _ = select.select(sockets, [], [], 0)
    return [one for one in sockets if one not in readable]


def until_closed(sockets: list[socket.socket], left: int = 0) -> None:
    until(lambda: len(open_ones(sockets)) <= left)


# ---------------------------------------------------------------- a body without an end


@pytest.mark.parametrize("path", ["/v1/completions", "/api/drafts", "/infill", "/api/generate"])
@pytest.mark.parametrize("lines", [("Transfer-Encoding: chunked",), ("Content-Length: 100",)])
def test_a_body_without_an_end_is_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, lines: tuple[str, ...]
) -> None:
    monkeypatch.setattr(refusals, "BODY_S", 0.1)
    with connected(site.port) as connection:
        begun = b"5\r\nabcde\r\n" if "chunked" in lines[0] else b"abcde"
        connection.sendall(request(site, path, *lines, method="POST", token=True) + begun)
        head, _, body = received(connection).partition(b"\r\n\r\n")  # the connection closes
        assert head.startswith(b"HTTP/1.1 408 ") and b"nothing came for 0.1 s" in body


# ---------------------------------------------------------------- the head of a request

BEGUN = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ENDLESS = {
    "an address": (b"GET /?", b"a" * 1000),
    "a header": (BEGUN + b"X: ", b"a" * 1000),
    "the name of a header": (BEGUN, b"a" * 1000),
    "headers": (BEGUN, b"X: " + b"a" * 997 + b"\r\n"),
    "blank lines": (b"", b"\r\n" * 500),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_head_of_more_than_64_kb_is_refused(site: Site, what: str) -> None:
    start, more = ENDLESS[what]
    with connected(site.port) as connection:
        connection.sendall(start + more * (HEAD // 1000 + 2))
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 400 ") and b"more than 65,536 bytes" in answer
    with connected(site.port) as connection:
        connection.sendall(start)
        sent = 0
        with suppress(OSError):
            while sent < SENT:
                connection.sendall(more * 100)
                sent += 100 * len(more)
        assert sent < SENT


def test_a_head_within_the_limit_is_answered(site: Site) -> None:
    for line in ("X: " + "a" * (HEAD - 1000), "Cookie: " + "a=b; " * 12_000):
        with connected(site.port) as connection:
            connection.sendall(request(site, "/api/status", line, "Connection: close", token=True))
            assert received(connection).startswith(b"HTTP/1.1 200 ")


def test_small_headers_are_limited_by_their_number(site: Site) -> None:
    for count, status in ((HEADERS - 3, b"200"), (HEADERS, b"400")):
        with connected(site.port) as connection:
            connection.sendall(request(site, "/api/status", *["a:"] * count, "Connection: close", token=True))
            assert received(connection).split()[1] == status


def test_an_address_with_thousands_of_parameters_is_not_taken_apart(site: Site) -> None:
    for more, status in ((1, 303), (10_000, 401)):
        path = f"/?token={site.access.token}" + "&a" * more
        assert site.ask_as("GET", path, None, {})[0].status == status


def test_bytes_that_begin_no_request_are_refused_at_once(site: Site) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01", b"get / HTTP/1.1", b"GET /\n\n"):  # the first begins TLS
        with connected(site.port) as connection:
            connection.sendall(data)
            assert received(connection).startswith(b"HTTP/1.1 400 ")


def test_a_head_in_pieces_is_answered(site: Site) -> None:
    data = request(site, "/api/status", "Connection: close", token=True)
    for cut in (1, len(data) - 3, len(data) - 1):
        with connected(site.port) as connection:
            connection.sendall(data[:cut])
            time.sleep(0.02)
            connection.sendall(data[cut:])
            assert received(connection).startswith(b"HTTP/1.1 200 ")


def test_no_header_changes_the_address_of_a_client() -> None:
    async def app(scope: Any, _: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": str(scope["client"]).encode()})

    server = Server(app)
    with connected(server.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
        assert str(connection.getsockname()).encode() in received(connection)
    server.stop()


@pytest.mark.parametrize(("start", "more"), [(b"", b""), (b"GET /", b"a"), (BEGUN, b"a"), (b"", b"\r\n")])
def test_a_connection_without_complete_headers_ends(
    site: Site, start: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with connected(site.port) as connection:
        connection.sendall(start)
        with suppress(OSError):
            for _ in range(100):  # each byte comes before a limit between two bytes would end it
                time.sleep(0.05)
                connection.sendall(more)
                if not open_ones([connection]):
                    break
        assert received(connection) == b""


def test_the_time_limit_ends_with_the_headers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    body = json.dumps(asked("slow", length=1)).encode()
    with connected(site.port) as connection:
        head = request(site, "/api/drafts", f"Content-Length: {len(body)}", method="POST", token=True)
        connection.sendall(head + body[:5])
        time.sleep(0.6)
        connection.sendall(body[5:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


# ---------------------------------------------------------------- what follows a head


@pytest.mark.parametrize("lines", [["Content-Length: 1000000000"], ["Transfer-Encoding: chunked"], ["Upgrade: h2c"]])
def test_a_request_without_the_token_is_refused_before_its_body_comes(site: Site, lines: list[str]) -> None:
    with connected(site.port) as connection:
        connection.sendall(request(site, "/api/drafts", *lines, "Connection: Upgrade", method="POST"))
        assert received(connection).startswith(b"HTTP/1.1 401 ")


def test_of_many_requests_without_the_token_in_one_packet_one_is_answered(site: Site) -> None:
    with connected(site.port) as connection:
        connection.sendall(request(site) * 500)
        assert received(connection).count(b"HTTP/1.1 ") == 1


def test_with_the_token_requests_may_follow_each_other_and_bodies_come_whole(site: Site) -> None:
    body = json.dumps(asked("large", length=1)).encode() + b" " * 200_000
    with connected(site.port) as connection:
        head = request(site, "/api/drafts", f"Content-Length: {len(body)}", method="POST", token=True)
        last = request(site, "/api/status", "Connection: close", token=True)
        connection.sendall(head + body + request(site, token=True) + last)
        answer = received(connection)
    assert answer.count(b"HTTP/1.1 200 ") == 3, answer
    assert b'"type": "stats"' in answer or b'"type":"stats"' in answer


def test_after_a_request_for_another_protocol_the_next_one_is_answered_or_the_connection_ends(site: Site) -> None:
    with connected(site.port) as connection:
        connection.sendall(request(site, "/api/status", "Connection: Upgrade", "Upgrade: h2c", token=True))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with suppress(OSError):
            connection.sendall(request(site, "/api/status", "Connection: close", token=True))
        assert received(connection)[:13] in (b"", b"HTTP/1.1 200 ")


@pytest.mark.parametrize("token", [True, False])
def test_few_requests_wait_for_the_one_before(site: Site, token: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = []
    complete = connections.LimitedConnection.on_headers_complete

    def counted(connection: connections.LimitedConnection) -> None:
        complete(connection)
        waiting.append(len(connection.pipeline))

    monkeypatch.setattr(connections.LimitedConnection, "on_headers_complete", counted)
    with connected(site.port) as connection:
        connection.sendall(request(site, token=token) * 500)
        received(connection)  # the connection closes
    assert max(waiting) == PIPELINED


def test_a_connection_that_rests_between_requests_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    for more in (b"", BEGUN):
        with connected(site.port) as connection:
            connection.sendall(request(site, token=True) + more)
            answer = received(connection)
            assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/", "/health", "/api/status", "/static/nothing"])
def test_a_connection_without_the_token_ends_with_the_first_answer(site: Site, path: str) -> None:
    with connected(site.port) as connection:
        connection.sendall(request(site, path))
        assert b"connection: close\r\n" in received(connection)


# ---------------------------------------------------------------- many connections


def test_the_connection_that_waited_longest_makes_room_and_running_responses_stay(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 30)
    monkeypatch.setattr(site.fake.model, "step_s", 0.1)
    body = json.dumps(asked("runs", length=20)).encode()
    with ExitStack() as stack:
        running = stack.enter_context(connected(site.port))
        running.sendall(request(site, "/api/drafts", f"Content-Length: {len(body)}", method="POST", token=True) + body)
        assert running.recv(1000).startswith(b"HTTP/1.1 200 ")
        first = [stack.enter_context(connected(site.port)) for _ in range(29)]
        assert site.ask("GET", "/api/status")[0].status == 200
        later = [stack.enter_context(connected(site.port)) for _ in range(29)]
        until_closed(first)
        assert len(open_ones(later)) == 29
        with connected(site.port) as other:
            other.sendall(request(site, "/api/status", "Connection: close", token=True))
            assert received(other).startswith(b"HTTP/1.1 200 ")
        running.sendall(request(site, "/api/status", "Connection: close", token=True))
        assert received(running).endswith(b"}")


@as_root
@linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of a process with threads
def test_another_user_with_many_connections_neither_stops_the_server_nor_reads_anything(site: Site) -> None:
    def seen() -> bytes:
        held = [connected(site.port) for _ in range(min(connections.most_connections(), 400))]
        for i, one in enumerate(held):
            one.sendall((request(site), BEGUN, request(site, method="POST"), b"\r\n")[i % 4])
        assert site.ask("GET", "/api/status")[0].status == 200  # as for the owner
        return b"".join(one.recv(1000) for one in held[::4])

    found = as_another_user(seen)
    assert isinstance(found, bytes), found
    assert b"HTTP/1.1 401 " in found and b"HTTP/1.1 200 " not in found


LIMITED = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 400))
    from app.web import serving

    serving.DraftService.start = lambda self: None  # the imports of a model take seconds
    serving.serve(port=0, page=False)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_idle_connections_do_not_exhaust_the_descriptors(tmp_path: Path) -> None:
    process = child(LIMITED, tmp_path)
    try:
        assert process.stdout
        port = int(process.stdout.readline().split(":")[2])
        token = (tmp_path / "XDG_DATA_HOME" / "polydraft" / "token").read_text().strip()
        with ExitStack() as stack:
            for _ in range(600):
                stack.enter_context(connected(port))
            for _ in range(3):
                with connected(port) as connection:
                    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
                    connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
                    assert received(connection).startswith(b"HTTP/1.1 200 ")
            assert psutil.Process(process.pid).num_fds() < 0.95 * 64
    finally:
        process.kill()
        process.communicate()
