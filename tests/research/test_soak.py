"""`bench soak`: a short run on a tiny model, and that lost and refused requests and lasting effects are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from research.bench import soak, typists
from research.bench.soak import Process, summary
from research.bench.typists import Habits, Outcomes, Server, Typist
from research.report import BenchOptions, number_in

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
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


def test_an_answer_in_words_is_not_lost() -> None:
    done = typed_at(OK + chunk(b'{"type": "drafts"}') + chunk(b'{"type": "stats"}') + b"0\r\n\r\n")
    assert (done.ends["done"], done.ends["lost"], len(done.first)) == (3, 0, 3)
    refused = typed_at(OK + chunk(b'{"type": "error", "message": "No room."}') + b"0\r\n\r\n")
    assert (refused.ends["refused"], refused.ends["lost"], refused.first) == (3, 0, [])


def test_what_is_left_behind_misses_its_target() -> None:
    outcomes = Outcomes(first=[0.01], waits={0: [0.01], 1: [0.01], 2: [0.05]})
    before, after = Process(100, 5, 10), Process(100, 6, 12)
    samples = [Process(size, 5, 10) for size in (10, 50, 100, 100, 100, 120)]
    alone = Outcomes(first=[0.01]), Outcomes(first=[0.02])
    targets = {t.name: t for t in summary(outcomes, samples, before, after, alone, 3, 6.0).targets}
    assert targets["fairness: slowest typist's median wait / median"].value == pytest.approx(5)
    assert targets["memory after warm-up: furthest from its median, %"].value == pytest.approx(20)
    assert (targets["threads left"].value, targets["descriptors left"].value) == (1, 2)
    assert [name for name, t in targets.items() if t.met] == [
        "requests without a response",
        "foreign requests that were answered",
    ]


def test_a_crowd_on_a_real_server_loses_nothing_and_leaves_nothing(
    own_folders: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typists, "KEYS", (4, 8))
    monkeypatch.setattr(typists, "REST", (0.2, 0.4))
    monkeypatch.setattr(typists, "STAY", (0.5, 2.0))
    report = soak.measure(BenchOptions(model=str(tiny_file), minutes=0.05, typists=12), lambda _: None)
    targets = {target.name: target for target in report.targets}
    for name in (
        "requests without a response",
        "foreign requests that were answered",
        "threads left",
        "descriptors left",
    ):
        assert targets[name].met, (targets[name], report.rows)
    counts = {row["what"]: number_in(row, "count") for row in report.rows}
    assert counts["12 typists: key to its first drafts"] > 10, report.rows
    assert counts["requests: foreign, refused"] > 0
