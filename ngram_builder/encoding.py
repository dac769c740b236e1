"""Encodes documents on all cores, in order.

Where the tokenizer says where texts can be cut, each core has a process with a cache of pieces (see `encoder`):
Python's lock would let threads use one core. Other tokenizers encode whole texts in threads; they release the lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ngram_builder import encoder
from ngram_builder.child import Children
from ngram_builder.encoder import Encoder, joined, tokens

if TYPE_CHECKING:  # its module imports torch, which counting does not need
    from core.models.base import Tokenizer

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
    known: Any = tokenizer
    if (cuts := getattr(tokenizer, "cuts", None)) is None:
        with _threads(workers) as pool:
            yield _in_order(pool, workers, lambda texts: joined(tokens(tokenizer.encode(text)) for text in texts))
        return
    own = Encoder(tokenizer.encode, **asdict(cuts), most=min(memory // encoder.PER_PIECE, encoder.MOST))
    if processes < 2:
        yield lambda batches: ((_array(own.batch(texts)), len(texts)) for texts in batches)
        return
    number = count()

    def encode(texts: Sequence[str]) -> bytes:
        return own.batch(texts) if next(number) < _ALONE else others.call(encoder.batch, texts)

    with Children(encoder.begin, *known.portable, asdict(cuts)) as others, _threads(processes) as pool:
        yield _in_order(pool, processes, encode)


@contextmanager
def _threads(number: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(number)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


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
