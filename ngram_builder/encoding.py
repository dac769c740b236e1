"""Encodes documents on all cores, in order.

Where the tokenizer says where texts can be cut, each core has a process with a cache of pieces (see `encoder`):
Python's lock would let threads use one core. Other tokenizers encode whole texts in threads; they release the lock.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core.errors import InputError
from ngram_builder import encoder
from ngram_builder.encoder import Encoder, packed, receive, send, tokens

if TYPE_CHECKING:  # its module imports torch, which counting does not need
    from core.models.base import Tokenizer
    from core.models.cuts import Cuts

PER_PROCESS = 200 << 20  # bytes of memory of a process that encodes
_ALONE = 4  # batches that this process encodes before others are started, which takes as long

# Yields for each batch of texts a stream of tokens (uint32, token + 1) with a 0 after every text, and their number.
Encode = Callable[[Iterable[Sequence[str]]], Iterator[tuple[np.ndarray, int]]]


@contextmanager
def encoding(tokenizer: Tokenizer, workers: int, processes: int, memory: int) -> Iterator[Encode]:
    """Yields a function that encodes batches of texts.

    Args:
        workers: threads.
        processes: the most processes to start, if the tokenizer is one that they can run; with fewer than two this
            process encodes alone.
        memory: bytes that this process may take for what it remembers; others take up to PER_PROCESS each.
    """
    cuts: Cuts | None = getattr(tokenizer, "cuts", None)
    if cuts is None:
        with _threads(workers) as pool:
            yield _in_order(pool, workers, lambda texts: _whole(tokenizer, texts))
        return
    own = Encoder(tokenizer.encode, **asdict(cuts), most=min(memory // encoder.PER_PIECE, encoder.MOST))
    if processes < 2:
        yield lambda batches: ((_array(own.batch(texts)), len(texts)) for texts in batches)
        return
    with _Processes(tokenizer, cuts) as others, _threads(processes) as pool:
        number = count()
        yield _in_order(
            pool, processes, lambda texts: own.batch(texts) if next(number) < _ALONE else others.batch(texts)
        )


@contextmanager
def _threads(number: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(number)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _whole(tokenizer: Tokenizer, texts: Sequence[str]) -> bytes:
    parts = list[bytes]()
    for text in texts:
        parts += (tokens(tokenizer.encode(text)), tokens([-1]))
    return b"".join(parts)


def _array(ids: bytes) -> np.ndarray:
    return np.frombuffer(ids, dtype=np.uint32)


def _in_order(pool: ThreadPoolExecutor, workers: int, encode: Callable[[Sequence[str]], bytes]) -> Encode:
    def encoded(batches: Iterable[Sequence[str]]) -> Iterator[tuple[np.ndarray, int]]:
        # A few batches are queued while others are encoded; they are returned in the file's order.
        waiting: deque[tuple[Future[bytes], int]] = deque()
        for texts in batches:
            waiting.append((pool.submit(encode, texts), len(texts)))
            while len(waiting) > 2 * workers:
                future, number = waiting.popleft()
                yield _array(future.result()), number
        while waiting:
            future, number = waiting.popleft()
            yield _array(future.result()), number

    return encoded


class _Processes:
    """Processes that encode, started when they are needed. They end with this process, however it ends."""

    def __init__(self, tokenizer: Tokenizer, cuts: Cuts) -> None:
        self._first = json.dumps((*tokenizer.portable, asdict(cuts))).encode()  # type: ignore[attr-defined]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def batch(self, texts: Sequence[str]) -> bytes:
        messages = [packed(texts)]
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = self._new()
            messages.insert(0, self._first)
        assert process.stdin and process.stdout
        try:
            for message in messages:
                send(process.stdin, message)
            ids = receive(process.stdout)
        except BrokenPipeError:
            ids = None
        if ids is None:
            raise InputError(
                f"A process that encodes text ended (status {process.wait()}), usually for lack of memory: give fewer "
                "--workers. The counts so far are kept, and the same command resumes from them."
            )
        self._idle.put(process)
        return ids

    def _new(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TOKENIZERS_PARALLELISM": "false"}
        program = str(Path(encoder.__file__))
        process = subprocess.Popen(
            [sys.executable, "-P", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._started.append(process)
        return process
