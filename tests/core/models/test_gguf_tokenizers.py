"""Tokenizers built from a GGUF file's metadata against llama.cpp's, on vocabularies trained here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_gguf import Field, tiny

from core.models import gguf_file
from core.models.hf_tokenizer import _PRE_TOKENIZERS, HFTokenizer, from_gguf
from tests.tiny_vocabularies import hard, of_bytes, sentencepiece

llama_cpp = pytest.importorskip("llama_cpp", reason="llama.cpp is not built here")

VOCABULARIES: dict[str, Callable[[], dict[str, Field]]] = {
    pre: (lambda pre=pre: of_bytes(pre)) for pre in _PRE_TOKENIZERS
}
VOCABULARIES |= {"SentencePiece": lambda: sentencepiece(True), "Gemma's": lambda: sentencepiece(False)}
# llama.cpp takes letters outside ASCII for upper and lower case at once.
ASCII_CASE = ("tekken", "gpt-4o")


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_are_those_of_llama_cpp_on_400_hard_texts(name: str, tmp_path: Path) -> None:
    fields = VOCABULARIES[name]()
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny(tokenizer=fields).written())
    file = gguf_file.read(path)
    ours = from_gguf(file.fields, len(file.fields["tokenizer.ggml.tokens"]))
    assert isinstance(ours, HFTokenizer)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    texts = hard(400)
    if name in ASCII_CASE:
        texts = [text.encode("ascii", "ignore").decode() for text in texts]
    try:
        wrong = []
        for text in texts:
            found, expected = ours.encode(text), theirs.tokenize(text.encode(), add_bos=False, special=False)
            if found != expected:
                wrong.append((text, [ours.pieces[i] for i in found], [ours.pieces[i] for i in expected]))
        assert not wrong, (len(wrong), wrong[:5])
    finally:
        theirs.close()
