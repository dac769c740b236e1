"""Simulated editors for `bench serve`: each replays a key trace, and requests completions from a server at every key.

A key closes the connections of the requests for the previous key. The wait for drafts counts from the first key that
has none, so a server's slowness shows even if keys come faster than its responses.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from research.bench.typists import CONTEXT, KEYS, PATIENCE, RATE, REST, Broken, Server

PATH = "/v1/completions"
SPREAD = 0.5  # of the logarithm of the time between two keys
GOOD = 0.1  # seconds from a key to its first draft

Bodies = Callable[[str], list[dict[str, Any]]]  # the requests for drafts after a text


@dataclass
class Answered:
    """The responses of a server to all editors.

    Attributes:
        keys: seconds from each key to its first draft; None if there was none before the next key.
        waits: seconds from the first key without a draft to the next first draft.
        received: the number of chunks with text.
        late: the number of chunks with text for requests that were closed before their end.
        ends: how the requests ended: "done", "superseded", or the server's reason.
    """

    keys: list[float | None] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    received: int = 0
    late: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> int:
        """The number of keys that had a draft in time."""
        return sum(first is not None and first <= GOOD for first in self.keys)


def trace(number: int, text: str) -> Iterator[tuple[float, str]]:
    """Yields the keys of an editor: the seconds before each, and the text before the caret. The same for the same
    number."""
    rng = random.Random(number)
    at = rng.randrange(CONTEXT, max(len(text) - 4000, CONTEXT + 1))
    start = at - CONTEXT
    pause = rng.uniform(*REST)
    while at < len(text):
        for _ in range(rng.randint(*KEYS)):
            at += 1
            yield pause, text[start:at]
            pause = rng.lognormvariate(0, SPREAD) / RATE
        pause = rng.uniform(*REST)


class Editor:
    """One editor with one text."""

    def __init__(self, number: int, server: Server, text: str, bodies: Bodies, typed: Answered) -> None:
        self._trace, self._server, self._bodies, self._typed = trace(number, text), server, bodies, typed
        self._running: list[asyncio.Task[None]] = []
        self._since: float | None = None  # of the first key without a draft

    async def type(self, seconds: float) -> None:
        """Types for so many seconds, and waits for the last drafts."""
        began = next_key = time.perf_counter()
        for pause, text in self._trace:
            next_key += pause
            if next_key > began + seconds:
                break
            await asyncio.sleep(max(next_key - time.perf_counter(), 0))
            await self._close()
            now = time.perf_counter()
            self._since = self._since or now
            self._typed.keys.append(None)
            key = len(self._typed.keys) - 1
            self._running = [asyncio.create_task(self._ask(body, key, now)) for body in self._bodies(text)]
        if self._running:
            await asyncio.wait(self._running, timeout=2 * REST[1])
        await self._close()
        if self._since is not None:  # the wait lasted at least until now
            self._typed.waits.append(time.perf_counter() - self._since)

    async def _close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _ask(self, body: dict[str, Any], key: int, pressed: float) -> None:
        typed, received, writer = self._typed, 0, None
        try:
            async with asyncio.timeout(PATIENCE):
                status, lines, writer = await self._server.post(PATH, json.dumps(body).encode())
                if status != 200:
                    raise Broken(f"status {status}")
                async for line in lines:
                    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                        continue
                    if any(choice["text"] for choice in json.loads(line[6:])["choices"]):
                        received += 1
                        self._shown(key, pressed)
            typed.ends["done"] += 1
        except asyncio.CancelledError:
            typed.ends["superseded"] += 1
            typed.late += received
            raise
        except (OSError, TimeoutError, Broken, asyncio.IncompleteReadError, ValueError, KeyError) as error:
            typed.ends[f"{type(error).__name__}: {error}"] += 1
        finally:
            typed.received += received
            if writer is not None:
                writer.close()
                with suppress(OSError):
                    await asyncio.shield(writer.wait_closed())

    def _shown(self, key: int, pressed: float) -> None:
        now = time.perf_counter()
        if self._typed.keys[key] is None:
            self._typed.keys[key] = now - pressed
        if self._since is not None:
            self._typed.waits.append(now - self._since)
            self._since = None
