"""A language model that is a table: logits after any text depend on its last two tokens. Costs microseconds, so that
distributions can be compared over many thousands of runs, and behaves as the real ones: trees, rewinding, forks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from core.models.base import LanguageModel, Row, Sequence, Tokenizer
from core.speculative.tree import TokenTree


def chain(ids: list[int], confidence: list[float] | None = None) -> TokenTree:
    """A tree with a single path."""
    return TokenTree(list(ids), list(range(-1, len(ids) - 1)), confidence or [1.0] * len(ids))


FIRST = 0x4E00  # of the ideographs


def words(letters: str) -> str:
    """The words with the numbers of these letters, a, b, c …"""
    return "".join(chr(FIRST + ord(letter) - 97) for letter in letters)


class Letters(Tokenizer):
    """Words of one ideograph, after each of which a draft may end. A test may write them as a, b, c …, too."""

    def __init__(self, n: int) -> None:
        self.pieces = [chr(FIRST + i).encode() for i in range(n)]
        self.eos_ids = self.special_ids = frozenset()
        self.start_ids = []
        self.document_start = 0

    def encode(self, text: str) -> list[int]:
        numbers = (ord(letter) - (FIRST if ord(letter) >= FIRST else 97) for letter in text)
        return [i for i in numbers if 0 <= i < len(self.pieces)]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.pieces[i] for i in ids).decode()


class TableModel(LanguageModel):
    backend, device, name, context_length = "table", "cpu", "table", 4096

    def __init__(self, vocabulary: int = 6, seed: int = 0, spread: float = 1.5) -> None:
        random = np.random.default_rng(seed)
        table = random.normal(0, spread, (vocabulary, vocabulary, vocabulary))
        self.table = torch.from_numpy(table.astype(np.float32))  # [before last, last] -> logits (V,)
        self.vocab_size, self.dim = vocabulary, 4
        self.embeddings = torch.from_numpy(random.normal(size=(vocabulary, 4)).astype(np.float32))
        self.tokenizer = Letters(vocabulary)

    def open(self) -> TableSequence:
        return TableSequence(self)

    def close(self) -> None: ...

    def after(self, ids: list[int]) -> Tensor:
        """Logits (V,) after a text."""
        return self.table[ids[-2] if len(ids) > 1 else 0, ids[-1]]

    def _nearest(self, vectors: Tensor) -> list[int]:
        return torch.cdist(vectors, self.embeddings).argmin(1).tolist()

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        found = []
        for row in rows:
            if row.silent:
                found.append(torch.empty(0))
                continue
            # The last token so far, which the table calls the first one of its two if there is none. A mixture counts
            # as the first token once it is past.
            last = (row.sequence.inputs[-1] or 0) if row.sequence.inputs else 0
            ids = self._nearest(row.inputs) if isinstance(row.inputs, Tensor) else list(row.inputs)
            parents = row.parents or range(-1, len(ids) - 1)
            before = [ids[parent] if parent >= 0 else last for parent in parents]
            every = row.every or row.parents is not None
            found.append(self.table[before, ids] if every else self.table[before[-1], ids[-1]].clone())
        return found


class TableSequence(Sequence):
    def _rewind(self, length: int) -> None: ...

    def _keep(self, path: list[int]) -> None: ...

    def _fork(self) -> TableSequence:
        return TableSequence(self.model)

    def _close(self) -> None: ...
