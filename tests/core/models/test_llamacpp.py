"""The llama.cpp backend, alone and against torch."""

from __future__ import annotations

import gc
from itertools import chain
from pathlib import Path

import pytest
import torch
from tiny_gguf import tiny

from core.errors import BackendUnavailable, InputError, ModelFileError, ModelNotFound
from core.models import gguf_file, load_model
from core.models.llamacpp import LlamaCppModel, LlamaCppTokenizer
from core.models.tokenizer import CONTROL, END_NAMES
from training.texts import load as load_text


def test_only_the_changed_tail_is_fed(llama_model):
    sequence = llama_model.open()
    text = llama_model.tokenizer.encode("It was a bright cold day in April, and the clocks were")
    sequence.sync(text)
    before = llama_model.tokens_fed
    sequence.sync([*text, 4242])
    assert llama_model.tokens_fed - before == 1
    sequence.sync([*text[:-2], 99, 100, 101])
    assert llama_model.tokens_fed - before == 4
    sequence.close()


def test_both_backends_agree_on_held_out_text(llama_model, torch_model):
    """Mean KL ≤ 0.005 nats over 128 positions, and the same best token wherever it is ahead by 0.25 nats. Nearer ones
    are decided by rounding, which differs between processors."""
    ids = llama_model.tokenizer.encode("\n\n".join(chain(*load_text(None))))[:128]
    ahead, divergence, n = 0, 0.0, 0
    for at in range(0, len(ids), 64):
        chunk = ids[at : at + 64]
        a, b = torch_model.open(), llama_model.open()
        p = torch.log_softmax(a.feed_every(chunk), -1)
        q = torch.log_softmax(b.feed_every(chunk), -1)
        a.close()
        b.close()
        best = p.topk(2).values
        clear = best[:, 0] - best[:, 1] >= 0.25
        assert torch.equal(p[clear].argmax(-1), q[clear].argmax(-1))
        ahead += int(clear.sum())
        divergence += float((p.exp() * (p - q)).sum())
        n += len(chunk)
    assert n == 128
    assert divergence / n <= 0.005
    assert ahead / n >= 0.7


def test_the_tokenizers_have_the_same_pieces(llama_model, torch_model):
    assert llama_model.tokenizer.fingerprint == torch_model.tokenizer.fingerprint
    assert llama_model.tokenizer.eos_ids == torch_model.tokenizer.eos_ids
    assert llama_model.tokenizer.document_start == torch_model.tokenizer.document_start


def test_llama_cpps_tokenizer_works_after_its_model_was_closed(
    default_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.models import llamacpp

    freed: list[object] = []
    really = llamacpp.lib.llama_model_free
    monkeypatch.setattr(llamacpp.lib, "llama_model_free", lambda pointer: (freed.append(pointer), really(pointer)))
    model = llamacpp.load(default_gguf, "default")
    tokenizer = model.tokenizer
    expected = tokenizer.encode("Once upon a time")
    model.close()
    del model
    gc.collect()
    assert not freed
    assert tokenizer.encode("Once upon a time") == expected
    del tokenizer
    gc.collect()
    assert len(freed) == 1


@pytest.mark.parametrize("backend", ["auto", "llama.cpp", "torch"])
def test_bad_files_are_errors_in_words(tmp_path, backend):
    with pytest.raises(ModelNotFound, match="No model file"):
        load_model(str(tmp_path / "x.gguf"), backend)
    for content, said in ((b"not a model", "not a GGUF"), (tiny().written()[:-1000], "truncated")):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(ModelFileError, match=said):
            load_model(str(tmp_path / "x.gguf"), backend)


def test_unknown_backends_are_refused(tmp_path):
    with pytest.raises(InputError, match="vulkan"):
        load_model("default", "vulkan")  # pyright: ignore[reportArgumentType]
    with pytest.raises(BackendUnavailable, match="reads GGUF"):
        load_model(str(tmp_path), "llama.cpp")


def test_a_control_token_with_any_known_name_of_an_end_ends_texts(
    llama_model: LlamaCppModel, default_gguf: Path
) -> None:
    """The torch backend knows the same names: both take them from one list."""
    fields = gguf_file.read(default_gguf).fields
    names, types = list(fields["tokenizer.ggml.tokens"]), fields["tokenizer.ggml.token_type"]
    control = [i for i, kind in enumerate(types) if kind == CONTROL]
    for i, name in zip(control, [*sorted(END_NAMES), *map(str, control)], strict=False):
        names[i] = name
    made = LlamaCppTokenizer(llama_model._weights, names, types)  # type: ignore[arg-type]
    assert made.eos_ids >= {*control[: len(END_NAMES)]} and len(control) >= len(END_NAMES)
