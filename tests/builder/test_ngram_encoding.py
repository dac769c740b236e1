"""Encoding on several cores: the tokenizer's own tokens, in order, whatever runs them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import ngram_builder
from core.errors import PolydraftError
from core.models.hf_tokenizer import HFTokenizer, from_gguf
from ngram_builder import encoder, encoding, parts
from tests.ngram_tools import Noting, WordTokenizer
from tests.tiny_vocabularies import hard, of_bytes

TEXTS = [*hard(60), "", "half a pair: \ud800"]
MEMORY = 1 << 20
BATCHES = [TEXTS[i : i + 7] for i in range(0, len(TEXTS), 7)]


@pytest.fixture(scope="module")
def tokenizer() -> HFTokenizer:
    fields = of_bytes("llama-bpe")
    metadata: dict[str, Any] = {}
    for key, field in fields.items():
        metadata[key] = field.value[1] if isinstance(field.value, tuple) else field.value
    made = from_gguf(metadata, len(metadata["tokenizer.ggml.tokens"]))
    assert made
    return made


def plain(tokenizer: Any, texts: Iterable[str]) -> list[int]:
    return [id for text in texts for id in [*(i + 1 for i in tokenizer.encode(text)), 0]]


@pytest.mark.parametrize(("processes", "memory"), [(1, MEMORY), (1, 5 * encoder.PER_PIECE), (3, MEMORY)])
def test_tokens_are_the_same_in_any_number_of_processes(tokenizer: HFTokenizer, processes: int, memory: int) -> None:
    with encoding.encoding(tokenizer, 2, processes, memory) as encode:
        found = list(encode(BATCHES))
    assert [number for _, number in found] == list(map(len, BATCHES))
    assert np.concatenate([ids for ids, _ in found]).tolist() == plain(tokenizer, TEXTS)


def test_a_tokenizer_of_an_unknown_family_encodes_whole_texts() -> None:
    noting, texts = Noting(), ["1 2  3", "4", ""]
    with encoding.encoding(noting, 2, 2, MEMORY) as encode:
        ((ids, number),) = encode([texts])
    assert (ids.tolist(), number) == (plain(WordTokenizer(), texts), 3)
    assert noting.texts == texts


def encoders() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if "ngram_builder.child" in child.cmdline():
                found.append(child)
    return found


def test_a_process_that_is_killed_is_reported(tokenizer: HFTokenizer) -> None:
    with (
        pytest.raises(PolydraftError, match=r"A process of the build ended with status -9, .* goes on from there"),
        encoding.encoding(tokenizer, 2, 2, MEMORY) as encode,
    ):
        for _ in encode(BATCHES * 50):
            for child in encoders():
                child.kill()
    assert not encoders()


@pytest.mark.usefixtures("small_process")
def test_a_build_writes_the_same_bytes_with_processes_and_without(
    tokenizer: HFTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "BATCH", 1)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("\n".join(hard(40, ord(name))))
    stores = []
    for workers in (1, 2):
        ngram_builder.build([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "s", tokenizer, workers=workers)
        stores.append((tmp_path / "s").read_bytes())
    monkeypatch.setattr(HFTokenizer, "cuts", None)
    ngram_builder.build([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "s", tokenizer)
    assert stores == [(tmp_path / "s").read_bytes()] * 2
