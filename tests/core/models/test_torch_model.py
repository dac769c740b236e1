"""The torch backend against transformers itself: tiny models with random weights, and the default model."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tiny_models import CONTEXT, VOCAB, save_model, tiny
from tokenizers import decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    MambaConfig,
    PreTrainedTokenizerFast,
)

from core.errors import ContextFull, ModelFileError, ModelNotFound
from core.models import hf, torch_model
from core.models.base import Row
from core.models.hf_tokenizer import from_transformers
from core.models.llama import NativeLlama
from core.models.native import Line
from core.models.torch_model import TorchModel

pytestmark = pytest.mark.usefixtures("small_scale")

HOSTILE = [
    "",
    " ",
    "\n\n\n   \t\r\n x",
    "Don't say I'LL 12345 times, she's 3.14!",
    "👩‍👩‍👧‍👦 🇩🇪 \U0001f926🏽",
    "שלום مرحبا \u202eabc",
    "漢字かな交じり文 한국어",
    "a\u0301 ½ ² ٣ Ⅷ \u00a0\u2003\u200b\ufeff",
    "\x00\x01\x06🫠\x1b[31m\x7f",
    "<|im_end|><|endoftext|> <|im_start|>user",
    " " * 300 + "x" * 300 + "\n" * 300,
    "half \ud83d a pair \udc00",
]


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Callable[[str], TorchModel]:
    return cache(lambda kind: hf.load(tiny_folder(kind), kind, plain=kind == "llama"))


@pytest.fixture(scope="module")
def llama(loaded: Callable[[str], TorchModel]) -> TorchModel:
    return loaded("llama")


def close_to(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=2e-4)


# --- sequences


def test_steps_of_forks_copy_the_cache_once_and_then_grow_in_place(
    llama: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "ROOM", 64)
    parent = llama.open()
    parent.feed([1, 2, 3])
    drafts = [parent, *(parent.fork() for _ in range(3))]
    places = []
    for step in range(10):
        rows = [Row(s, llama.embeddings[step : step + 1]) for s in drafts]
        llama.forward(rows if step % 2 else rows[::-1])  # the order of the rows does not matter
        places.append([(id(s.store), s.line, s.start) for s in drafts])  # type: ignore[attr-defined]
    assert all(place == places[0] for place in places)
    last = drafts[1].feed([7])  # one of them goes on alone, still in place
    assert (id(drafts[1].store), drafts[1].line) == places[0][1][:2]  # type: ignore[attr-defined]
    again = llama.open()
    again.feed([1, 2, 3])
    llama.forward([Row(again, llama.embeddings[:10])])
    assert close_to(last, again.feed([7]))


def test_compiled_code_runs_rows_of_any_lengths_in_one_call_where_they_are(
    loaded: Callable[[str], TorchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "ROOM", 64)
    model = loaded("compiled llama")
    texts = [list(range(25)), [4], [8, 15, 16], []]
    sequences = [model.open() for _ in texts]
    for sequence, text in zip(sequences, texts, strict=True):
        if text:
            sequence.feed(text)
    stores = [sequence.store for sequence in sequences]  # type: ignore[attr-defined]
    calls: list[tuple[list[int], int]] = []
    forward = NativeLlama.forward

    def counted(module: NativeLlama, h: Tensor, positions: Tensor, lines: list[Line], kept: Tensor, *more: Any) -> Any:
        calls.append(([line.n for line in lines], len(kept)))
        return forward(module, h, positions, lines, kept, *more)

    monkeypatch.setattr(NativeLlama, "forward", counted)
    more = [[1], list(range(20)), [2, 3], [5]]
    rows = [Row(s, ids) for s, ids in zip(sequences, more, strict=True)]
    rows[1] = Row(sequences[1], more[1], silent=True)
    rows[2] = Row(sequences[2], more[2], every=True)
    found = model.forward(rows)
    assert calls == [([1, 20, 2, 1], 4)], "no logits after a silent row"
    assert [sequence.store for sequence in sequences[:3]] == stores[:3]  # type: ignore[attr-defined]
    alone = [model.open().feed_every(text + ids) for text, ids in zip(texts, more, strict=True)]
    assert close_to(found[0], alone[0][-1]) and close_to(found[2], alone[2][-2:]) and close_to(found[3], alone[3][-1])
    assert close_to(sequences[1].feed([7]), model.open().feed([*texts[1], *more[1], 7]))


def test_padding_never_uses_a_position_that_the_model_has_not_learnt(
    loaded: Callable[[str], TorchModel],
) -> None:
    model = loaded("gpt2")
    short, long = model.open(), model.open()
    ids = list(range(CONTEXT - 1))
    long.feed(ids)
    _, last = model.forward([Row(short, [1, 2, 3, 4]), Row(long, [9])])
    assert close_to(last, model.open().feed([*ids, 9]))


@pytest.mark.parametrize("kind", ["llama", "compiled llama"])
def test_a_pass_that_fails_half_way_leaves_every_sequence_as_it_was(
    loaded: Callable[[str], TorchModel], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    model, passes = loaded(kind), list[int]()
    parent, other = model.open(), model.open()
    parent.feed([1, 2, 3])
    other.feed([4])
    fork = parent.fork()
    module = model.layers.module
    forward = type(module).forward

    def full(*inputs: Any, **more: Any) -> Any:
        passes.append(1)
        if kind == "compiled llama" or len(passes) == 2:
            raise ContextFull("The memory is full.")
        return forward(*inputs, **more)

    with monkeypatch.context() as patch:
        patch.setattr(type(module), "forward", full)
        with pytest.raises(ContextFull):  # too unlike for one pass of transformers' layers
            model.forward([Row(parent, [5]), Row(fork, [6, 7]), Row(other, list(range(30)))])
    texts = {parent: [1, 2, 3], fork: [1, 2, 3], other: [4]}
    for sequence, ids in texts.items():
        assert sequence.inputs == ids
        assert close_to(sequence.feed([6]), model.open().feed([*ids, 6]))


# --- files


def evil(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('this ran')")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def deeper(folder: Path) -> None:
    config = tiny("llama")
    config.num_hidden_layers += 1
    config.save_pretrained(folder)


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"has no config\.json; give"),
        (pickled, "safetensors"),
        (evil, "Cannot read"),
        (deeper, "lacks 9 of the model's weights"),
        (truncated, "Cannot read"),
    ],
    ids=["no config", "pickled weights", "code", "a layer too few", "truncated"],
)
def test_a_folder_that_is_no_sound_model_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    damage(save_model(tmp_path, tiny("llama")))
    with pytest.raises(ModelFileError, match=said):
        hf.load(tmp_path, "x")


def test_a_model_that_cannot_rewind_is_refused(tmp_path: Path) -> None:
    config = MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(
        ModelFileError, match="x is of the recurrent architecture mamba, whose memory cannot be rewound"
    ):
        hf.load(save_model(tmp_path, config), "x")


def test_an_unknown_hub_id_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.hub, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match=r"'nobody/no-such-model'.*; fetch it with .*, or give"):
        hf.load("nobody/no-such-model", "x")


def test_loading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hf.load(save_model(tmp_path, tiny("llama")), "x")
    capfd.readouterr()
    hf.load(tmp_path, "x")
    assert capfd.readouterr() == ("", "")


# --- tokenizers


def test_special_tokens_of_a_directory(llama: TorchModel) -> None:
    tokenizer = llama.tokenizer
    assert tokenizer.eos_ids == {256, 257}
    assert tokenizer.special_ids == set(range(256, VOCAB))  # the control tokens, and rows without a token
    assert len(tokenizer.pieces) == llama.vocab_size == VOCAB
    assert all((piece == b"") == (i in tokenizer.special_ids) for i, piece in enumerate(tokenizer.pieces))
    assert (tokenizer.start_ids, tokenizer.document_start) == ([], 256)


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_comes_back_and_none_becomes_a_control_token(llama: TorchModel, text: str) -> None:
    ids = llama.tokenizer.encode(text)
    assert not llama.tokenizer.special_ids & set(ids)
    assert llama.tokenizer.decode(ids) == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def test_pieces_and_start_of_a_sentencepiece_vocabulary() -> None:
    letters = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    vocab = {letter: i for i, letter in enumerate(letters)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "a")], byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer = from_transformers(fast, len(letters) + 3, eos_ids=[1])
    assert tokenizer.pieces[:3] == [b"", b"", b"\x00"]
    assert tokenizer.pieces[-6:] == [b" ", b"a", b" a", b"", b"", b""]
    assert (tokenizer.start_ids, tokenizer.document_start, tokenizer.eos_ids) == ([0], 0, {1})
    assert tokenizer.encode("a a") == [vocab["a"], vocab["▁a"]]
    assert tokenizer.decode(tokenizer.encode("</s>é a")) == "</s>é a"
    assert 1 not in tokenizer.encode("</s>")


# --- the default model


def test_the_default_models_special_tokens(torch_model: TorchModel) -> None:
    tokenizer = torch_model.tokenizer
    assert tokenizer.eos_ids == {0, 2}
    assert tokenizer.special_ids == set(range(17))
    assert (tokenizer.start_ids, tokenizer.document_start) == ([], 0)
    assert len(tokenizer.pieces) == torch_model.vocab_size


def test_the_gguf_tokenizer_is_llama_cpps(torch_model: TorchModel, default_gguf: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama.cpp is not built here")
    llama = llama_cpp.Llama(str(default_gguf), vocab_only=True, verbose=False)
    texts = [*HOSTILE, Path(__file__).read_text(), *(f"a{chr(c)} b{chr(c)}1" for c in range(1, 0xD800, 37))]
    for text in texts:
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        expected = llama.tokenize(clean.encode(), add_bos=False, special=False)
        assert torch_model.tokenizer.encode(text) == expected, text
    llama.close()
