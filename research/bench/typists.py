"""Simulated typists for `bench soak`: many tabs that type over real HTTP, each with its own habits.

A typist writes a passage key by key, requests drafts at every key, and pauses sometimes, so that drafts complete. The
outcome of every request is recorded: it completed, a newer request of the tab superseded it, the typist left, or it was
lost.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlsplit

RATE = 8  # keys a second
KEYS = (20, 60)  # typed before a rest
REST = (0.5, 2.5)  # seconds
CONTEXT = 300  # characters before the caret when typing starts
CONNECTIONS = 6  # simultaneous ones of a tab, as in a browser; a newer request closes the oldest
STAY = (5.0, 25.0)  # seconds until a typist leaves, and a new one starts in another tab
SLOW = 0.2  # seconds between two reads of a slow reader
PATIENCE = 30.0  # seconds; a response that takes longer is lost


Answer = tuple[int, AsyncIterator[bytes], asyncio.StreamWriter]


class Broken(Exception):
    """The server's response is not HTTP, or broke off."""


@dataclass(frozen=True)
class Server:
    """The server.

    Attributes:
        headers: the headers of every request, with the token.
    """

    url: str
    headers: dict[str, str]

    async def post(self, path: str, body: bytes, **headers: str) -> Answer:
        """Sends a request on its own connection. Returns the status, the lines, and the writer of the connection."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        fields = {"Host": address.netloc, "Content-Type": "application/json", "Connection": "close", **self.headers}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            status = (await reader.readline()).split()
            chunked = False
            while (line := await reader.readline()) not in (b"\r\n", b""):
                chunked |= line.lower().startswith(b"transfer-encoding: chunked")
            if len(status) < 2:
                raise Broken("no status line")
        except BaseException:
            writer.close()
            raise
        return int(status[1]), _lines(reader, chunked), writer


async def _lines(reader: asyncio.StreamReader, chunked: bool) -> AsyncIterator[bytes]:
    if not chunked:
        while line := await reader.readline():
            yield line
        return
    rest = b""
    while True:
        size = await reader.readline()
        if not size.strip():
            raise Broken("the answer broke off")
        data = await reader.readexactly(int(size, 16) + 2)
        *whole, rest = (rest + data[:-2]).split(b"\n")
        for line in whole:
            yield line
        if len(data) == 2:
            return


@dataclass
class Outcomes:
    """The outcomes of all requests.

    Attributes:
        first: seconds from a key to its first drafts, of the keys with drafts.
        waits: by typist, seconds from the first key without drafts to the tab's next first drafts.
        ends: how requests ended: "done", "overtaken", "left", "refused" (an error message), "lost".
        lost: the reasons of the lost ones.
    """

    first: list[float] = field(default_factory=list)
    waits: dict[int, list[float]] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def slowest_to_median(self) -> float:
        """Returns the longest of the typists' median waits, divided by the median of them."""
        medians = [median(waits) for waits in self.waits.values() if waits]
        return max(medians) / median(medians) if medians else float("nan")


@dataclass
class Habits:
    """The habits of one typist.

    Attributes:
        silent: leaves without telling the server, and drops the connection of a superseded request immediately.
        slow: reads responses slowly.
        restless: leaves after a while, and returns in a new tab.
    """

    silent: bool = False
    slow: bool = False
    restless: bool = True


class Typist:
    """A typist in a sequence of tabs."""

    def __init__(self, number: int, server: Server, text: str, habits: Habits, outcomes: Outcomes) -> None:
        self.number, self.habits = number, habits
        self._server, self._text, self._outcomes = server, text, outcomes
        self._rng = random.Random(number)
        self._answers: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._waiting_since: float | None = None
        outcomes.waits[number] = []

    async def type(self, seconds: float, keys: int | None = None) -> None:
        """Types for so many seconds, or so many keys."""
        end, left = time.perf_counter() + seconds, keys
        while time.perf_counter() < end and left != 0:
            stay = self._rng.uniform(*STAY) if self.habits.restless else seconds
            left = await self._in_one_tab(min(end, time.perf_counter() + stay), left)

    async def _in_one_tab(self, end: float, left: int | None) -> int | None:
        tab, n = secrets.token_hex(12), 0
        at = self._rng.randrange(CONTEXT, max(len(self._text) - 4000, CONTEXT + 1))
        start, self._waiting_since = at - CONTEXT, None
        newest: list[int] = [0]
        while time.perf_counter() < end and left != 0:
            burst = self._rng.randint(*KEYS)
            began = time.perf_counter()
            for key in range(burst if left is None else min(burst, left)):
                await asyncio.sleep(max(began + key / RATE - time.perf_counter(), 0))
                if time.perf_counter() >= end:
                    break
                n, at, newest[0] = n + 1, at + 1, n + 1
                kept = 0 if self.habits.silent else CONNECTIONS - 1
                for answer in list(self._answers)[: max(len(self._answers) - kept, 0)]:
                    answer.cancel()
                self._waiting_since = self._waiting_since or time.perf_counter()
                task = asyncio.create_task(self._ask(tab, n, self._text[start:at], newest))
                self._answers[task] = None
                task.add_done_callback(lambda task: self._answers.pop(task, None))
                left = None if left is None else left - 1
            await asyncio.sleep(self._rng.uniform(*REST))
        if left == 0 and not self.habits.restless:  # let the last drafts complete
            await asyncio.gather(*self._answers)
        for answer in list(self._answers):
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        if not self.habits.silent:
            with suppress(OSError, Broken):
                _, lines, writer = await self._server.post("/api/leave", json.dumps({"tab": tab}).encode())
                async for _ in lines:
                    pass
                writer.close()
        return left

    async def _ask(self, tab: str, n: int, before: str, newest: list[int]) -> None:
        pressed = time.perf_counter()
        body = json.dumps({"tab": tab, "n": n, "before": before}).encode()
        writer, ended = None, False
        try:
            async with asyncio.timeout(PATIENCE):
                status, lines, writer = await self._server.post("/api/drafts", body)
                if status != 200:
                    raise Broken(f"status {status}")
                first = True
                async for line in lines:
                    event = json.loads(line)
                    if event["type"] == "drafts" and first:
                        first, now = False, time.perf_counter()
                        self._outcomes.first.append(now - pressed)
                        if self._waiting_since is not None:
                            self._outcomes.waits[self.number].append(now - self._waiting_since)
                            self._waiting_since = None
                    elif event["type"] in ("stats", "error"):
                        ended = True
                        self._outcomes.ends["done" if event["type"] == "stats" else "refused"] += 1
                        if event["type"] == "error":
                            self._outcomes.lost[event["message"]] += 1
                    if self.habits.slow:
                        await asyncio.sleep(SLOW)
            if not ended:
                self._lost_unless(newest[0] > n, "an end without a final line")
        except asyncio.CancelledError:
            if not ended:
                self._outcomes.ends["overtaken" if newest[0] > n else "left"] += 1
        except TimeoutError:
            self._lost_unless(newest[0] > n, "no end within the time limit")
        except (OSError, Broken, asyncio.IncompleteReadError, ValueError) as error:
            if not ended:
                self._lost_unless(False, f"{type(error).__name__}: {error}")
        finally:
            if writer is not None:
                writer.close()

    def _lost_unless(self, overtaken: bool, why: str) -> None:
        self._outcomes.ends["overtaken" if overtaken else "lost"] += 1
        if not overtaken:
            self._outcomes.lost[why] += 1


# Requests that must be refused: path, headers, body.
FOREIGN: list[tuple[str, dict[str, str], bytes]] = [
    ("/api/drafts", {"Host": "example.org"}, b"{}"),
    ("/api/drafts", {"Origin": "https://example.org"}, b'{"tab": "x", "n": 1, "before": "x"}'),
    ("/api/drafts", {"Sec_Fetch_Site": "cross-site"}, b'{"tab": "x", "n": 1, "before": "x"}'),
    ("/api/drafts", {}, b"\xff\x00 no JSON"),
    ("/api/drafts", {}, b"[" * 5000),
    ("/api/drafts", {}, b'{"tab": "x", "n": -1, "before": 5, "more": {}}'),
    ("/api/drafts", {}, b'{"tab": "x", "n": 1, "before": "x", "settings": {"k": 1e9}}'),
    ("/api/drafts", {}, b" " * 300_000),
    ("/api/leave", {}, b"{}"),
    ("/api/nothing", {}, b"{}"),
]


async def foreign(server: Server, seconds: float, outcomes: Outcomes, every: float = 0.2) -> None:
    """Sends requests that must be refused, and requests that break off in the middle."""
    end, rng, address = time.perf_counter() + seconds, random.Random(0), urlsplit(server.url)
    while time.perf_counter() < end:
        await asyncio.sleep(every)
        try:
            if rng.random() < 0.2:
                _, writer = await asyncio.open_connection(address.hostname, address.port)
                writer.write(b"POST /api/drafts HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"[: rng.randint(1, 60)])
                await asyncio.sleep(every)
                writer.close()
                continue
            path, headers, body = rng.choice(FOREIGN)
            async with asyncio.timeout(PATIENCE):
                status, lines, writer = await server.post(path, body, **headers)
                async for _ in lines:
                    pass
                writer.close()
            outcomes.ends["foreign, refused" if 400 <= status < 500 else f"foreign, answered {status}"] += 1
        except (ConnectionError, TimeoutError, Broken, asyncio.IncompleteReadError):
            outcomes.ends["foreign, closed"] += (
                1  # the server may close the connection of a too large request before all of it is sent
            )
