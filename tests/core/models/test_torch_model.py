"""The torch backend against transformers itself: tiny models with random weights, and the default model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONTEXT, VOCAB, save_model, tiny
from tokenizers import decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    MambaConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.errors import ContextFull, InputError, ModelFileError, ModelNotFound
from core.models import hf, torch_model
from core.models.base import Row
from core.models.hf_tokenizer import from_transformers
from core.models.llama import NativeLlama
from core.models.native import Line
from core.models.torch_model import TorchModel, TorchSequence

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


@dataclass
class Loaded:
    model: TorchModel
    reference: Callable[[list[Tensor]], list[Tensor]]  # embeddings (n, D) of texts -> logits (n, V), no cache


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Callable[[str], Loaded]:
    made: dict[str, Loaded] = {}

    def get(kind: str) -> Loaded:
        if kind not in made:
            folder = tiny_folder(kind)
            plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

            def reference(texts: list[Tensor]) -> list[Tensor]:
                padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)  # no position sees a later one
                with torch.no_grad():
                    logits = plain(inputs_embeds=padded, use_cache=False).logits
                return [of_text[: len(text)] for of_text, text in zip(logits, texts, strict=True)]

            made[kind] = Loaded(hf.load(folder, kind, plain=kind == "llama"), reference)
        return made[kind]

    return get


@pytest.fixture(scope="module")
def llama(loaded: Callable[[str], Loaded]) -> TorchModel:
    return loaded("llama").model


def close_to(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=2e-4)


KINDS = ["llama", "compiled llama", "gpt2", "gemma3", "bloom"]

# --- sequences


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_any_program_of_passes_rewinds_and_forks_equals_computing_everything_anew(
    loaded: Callable[[str], Loaded], kind: str, data: st.DataObject
) -> None:
    model, reference = loaded(kind).model, loaded(kind).reference
    held: list[tuple[TorchSequence, Tensor]] = [(model.open(), torch.empty(0, model.dim))]  # with its inputs
    texts: list[Tensor] = []  # after which there were these logits
    outputs: list[Tensor] = []
    for _ in range(data.draw(st.integers(3, 9), label="steps")):
        kind_of_step = data.draw(
            st.sampled_from(["pass", "fork", "step", "rewind", "pass", "step", "open", "close"]), label="do"
        )
        at = data.draw(st.integers(0, len(held) - 1), label="which")
        sequence, fed = held[at]
        if kind_of_step == "rewind":
            length = data.draw(st.integers(0, sequence.length), label="to")
            sequence.rewind(length)
            held[at] = (sequence, fed[:length])
        elif kind_of_step == "fork":
            held.append((sequence.fork(), fed))  # type: ignore[arg-type]
        elif kind_of_step == "open":
            held.append((model.open(), torch.empty(0, model.dim)))
        elif kind_of_step == "close" and len(held) > 1:
            sequence.close()
            del held[at]
        else:
            every_one = kind_of_step == "step"  # all of them by one input, as a set of drafts does
            chosen = (
                range(len(held))
                if every_one
                else data.draw(st.lists(st.integers(0, len(held) - 1), min_size=1, unique=True), label="rows")
            )
            rows, vectors = [], []
            for i in chosen:
                room = CONTEXT - held[i][0].length
                if room < 1:
                    continue
                n = 1 if every_one else data.draw(st.integers(1, min(room, 21)), label="n")
                chance = random.Random(data.draw(st.integers(0, 99), label="of ids"))  # 20 drawn ids take a pass's time
                ids = chance.choices(range(VOCAB), k=n)
                vector = model.embeddings[torch.tensor(ids)]
                inputs: list[int] | Tensor = ids
                if data.draw(st.booleans(), label="as embeddings"):
                    vector = inputs = 0.7 * vector + 0.3 * model.embeddings[torch.tensor(ids[::-1]) // 2]
                rows.append((i, Row(held[i][0], inputs, every=data.draw(st.booleans(), label="every"))))
                vectors.append(vector)
            if not rows:
                continue
            for (i, row), vector, output in zip(rows, vectors, model.forward([row for _, row in rows]), strict=True):
                held[i] = (held[i][0], torch.cat([held[i][1], vector]))
                assert output.shape == ((len(vector), VOCAB) if row.every else (VOCAB,))
                texts.append(held[i][1])
                outputs.append(output)
    for output, expected in zip(outputs, reference(texts) if texts else [], strict=True):
        assert close_to(output, expected[-len(output) :] if output.ndim == 2 else expected[-1])
    for sequence, fed in held:
        assert sequence.length == len(fed)
        sequence.close()


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
    loaded: Callable[[str], Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "ROOM", 64)
    model = loaded("compiled llama").model
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


def test_compiled_code_without_memory_leaves_every_sequence_as_it_was(
    loaded: Callable[[str], Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded("compiled llama").model
    parent = model.open()
    parent.feed([1, 2, 3])
    fork = parent.fork()

    def full(*given: Any) -> None:
        raise ContextFull("The memory is full.")

    with monkeypatch.context() as patch:
        patch.setattr(NativeLlama, "forward", full)
        with pytest.raises(ContextFull):
            model.forward([Row(parent, [5]), Row(fork, [6, 7])])
    assert (parent.inputs, fork.inputs) == ([1, 2, 3], [1, 2, 3])
    assert close_to(fork.feed([6]), model.open().feed([1, 2, 3, 6]))
    assert close_to(parent.feed([5]), model.open().feed([1, 2, 3, 5]))


def test_padding_never_uses_a_position_that_the_model_has_not_learnt(
    loaded: Callable[[str], Loaded],
) -> None:
    model = loaded("gpt2").model
    short, long = model.open(), model.open()
    ids = list(range(CONTEXT - 1))
    long.feed(ids)
    _, last = model.forward([Row(short, [1, 2, 3, 4]), Row(long, [9])])
    assert close_to(last, model.open().feed([*ids, 9]))


def test_a_full_context_leaves_every_sequence_as_it_was(llama: TorchModel) -> None:
    assert llama.context_length == CONTEXT
    short, long = llama.open(), llama.open()
    short.feed([1, 2])
    long.feed(list(range(CONTEXT - 1)))
    fed = llama.tokens_fed
    with pytest.raises(ContextFull, match=f"{CONTEXT - 1} positions are held and 2 more.* {CONTEXT}"):
        llama.forward([Row(short, [3]), Row(long, [3, 4])])
    assert (short.length, long.length, llama.tokens_fed) == (2, CONTEXT - 1, fed)
    assert close_to(short.feed([3]), llama.open().feed([1, 2, 3]))
    assert close_to(long.feed([9]), llama.open().feed([*range(CONTEXT - 1), 9]))


def test_a_pass_that_fails_half_way_leaves_every_sequence_as_it_was(
    loaded: Callable[[str], Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = loaded("llama").model
    a, b = llama.open(), llama.open()
    a.feed([1, 2, 3])
    b.feed([4])
    head = llama.layers.module.get_output_embeddings()
    calls = []

    def fail_second(inputs: Tensor) -> Tensor:
        calls.append(inputs)
        if len(calls) == 2:
            raise RuntimeError("out of order")
        return torch.nn.functional.linear(inputs, head.weight)

    with monkeypatch.context() as patch:
        patch.setattr(head, "forward", fail_second)
        with pytest.raises(RuntimeError, match="out of order"):
            llama.forward([Row(a, [5]), Row(b, list(range(30)))])  # too unlike for one pass
    assert len(calls) == 2 and (a.inputs, b.inputs) == ([1, 2, 3], [4])
    assert close_to(a.feed([6]), llama.open().feed([1, 2, 3, 6]))
    assert close_to(b.feed([7]), llama.open().feed([4, 7]))


def test_logits_belong_to_the_caller(llama: TorchModel) -> None:
    sequence = llama.open()
    for logits in (sequence.feed([1, 2]), sequence.sync([1, 2])):
        logits[:] = 0  # must be allowed, and must not change the cached logits
    assert close_to(sequence.sync([1, 2]), llama.open().feed([1, 2]))
    assert close_to(sequence.feed([3]), llama.open().feed([1, 2, 3]))


def test_closed_sequences_and_wrong_inputs_are_refused(llama: TorchModel, loaded: Callable[[str], Loaded]) -> None:
    sequence = llama.open()
    with pytest.raises(InputError, match="outside the vocabulary"):
        sequence.feed([VOCAB])
    with pytest.raises(InputError, match="another model"):
        llama.forward([Row(loaded("gpt2").model.open(), [1])])
    sequence.close()
    sequence.close()
    with pytest.raises(InputError, match="closed"):
        sequence.feed([1])
    with pytest.raises(InputError, match="closed"):
        sequence.fork()


# --- files


def test_a_directory_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"has no config\.json; give"):
        hf.load(tmp_path, "x")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path, tiny("llama"))
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match="safetensors"):
        hf.load(folder, "x")


def test_code_that_comes_with_a_model_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path, tiny("llama"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('this ran')")
    with pytest.raises(ModelFileError):
        hf.load(folder, "x")


@pytest.mark.parametrize("keep", [1.0, 0.5], ids=["a layer too few", "truncated"])
def test_incomplete_weights_are_refused(tmp_path: Path, keep: float) -> None:
    config = tiny("llama")
    folder = save_model(tmp_path, config)
    if keep < 1:
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[: int(keep * len(weights))])
    else:
        config.num_hidden_layers += 1
        config.save_pretrained(folder)
    with pytest.raises(ModelFileError):
        hf.load(folder, "x")


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


def test_the_default_model_knows_its_capitals(torch_model: TorchModel) -> None:
    tokenizer = torch_model.tokenizer
    ids = tokenizer.encode("Paris is the capital of France. Rome is the capital of")
    sequence = torch_model.open()
    logits = sequence.feed(ids)
    assert tokenizer.decode([int(logits.argmax())]) == " Italy"
    step = sequence.feed(tokenizer.encode(" Italy"))
    sequence.rewind(len(ids))
    mixed = sequence.feed_embedding(torch_model.embeddings[tokenizer.encode(" Italy")[0]])
    assert torch.allclose(step, mixed, rtol=1e-3, atol=1e-3)
    sequence.close()
