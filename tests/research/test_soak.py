"""`bench soak`: what is counted on scripted servers, and its interval."""

from __future__ import annotations

import asyncio

import pytest

from research.bench import soak, typists
from research.bench.typists import Habits, Outcomes, Server, Typist

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def typed_at(answer: bytes, keys: int = 3) -> Outcomes:
    """The results of a typist with a server that returns this answer to every request for drafts."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def type() -> Outcomes:
        server, outcomes = await asyncio.start_server(handle, "127.0.0.1", 0), Outcomes()
        async with server:
            port = server.sockets[0].getsockname()[1]
            typist = Typist(0, Server(f"http://127.0.0.1:{port}", {}), "word " * 500, Habits(restless=False), outcomes)
            await typist.type(60, keys)
        return outcomes

    return asyncio.run(asyncio.wait_for(type(), 30))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typists, "REST", (0.05, 0.1))
    monkeypatch.setattr(soak, "ALONE", 6)
    monkeypatch.setattr(soak, "FEW", 2)


def chunk(line: bytes) -> bytes:
    return f"{len(line) + 1:x}\r\n".encode() + line + b"\n\r\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (OK + chunk(b'{"type": "drafts"}') + b"0\r\n\r\n", "an end without a final line"),
        (OK + chunk(b'{"type": "drafts"}'), "broke off"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "status 500"),
        (b"", "no status line"),
    ],
)
def test_an_answer_that_ends_without_a_word_is_lost(answer: bytes, why: str) -> None:
    outcomes = typed_at(answer)
    assert outcomes.ends["lost"] >= 1
    assert any(why in reason for reason in outcomes.lost)
    assert not outcomes.ends["done"]
