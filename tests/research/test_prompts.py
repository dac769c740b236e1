"""Prompts of speculation and its evaluations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import InputError
from core.models import gguf_file
from core.models.chat import chat_template
from core.models.hf_tokenizer import from_gguf
from core.models.load import default_model_path
from research.prompts import prompts


def test_prompts_are_read_by_kind(tmp_path: Path) -> None:
    tokenizer = from_gguf(gguf_file.read(default_model_path()).fields, 49152)
    assert tokenizer is not None
    ours = prompts(None, tokenizer, 2)
    assert set(ours) == {"chat", "code", "maths", "tasks"}
    assert all(len(of_kind) == 2 for of_kind in ours.values())
    (tmp_path / "one.jsonl").write_text(json.dumps({"turns": ["Hello there"]}) + "\n")
    assert list(prompts(tmp_path, tokenizer)) == ["one"]
    (tmp_path / "one.jsonl").write_text('{"turns": ["Hello"]}\n{"turn": 1}\n')
    with pytest.raises(InputError, match="Line 2"):
        prompts(tmp_path, tokenizer)
    (tmp_path / "one.jsonl").write_text('{"turns": ["Hello"]}\n\n')
    with pytest.raises(InputError, match="Line 2"):  # not the line before, which is a prompt
        prompts(tmp_path, tokenizer)
    with pytest.raises(InputError, match="cannot be read"):
        prompts(tmp_path / "none.jsonl", tokenizer)


def test_an_instruction_model_gets_prompts_in_its_chat_template(tmp_path: Path) -> None:
    """As appendix A.4 of the ARC-Decode paper has them: a system prompt, and four examples before a sum."""
    fields = gguf_file.read(default_model_path()).fields
    tokenizer = from_gguf(fields, 49152)
    chat = chat_template("default")
    assert tokenizer is not None and chat is not None
    for kind in ("mt_bench", "gsm8k", "humaneval", "other"):
        (tmp_path / f"{kind}.jsonl").write_text(json.dumps({"turns": ["What is it?"]}) + "\n")
    found = prompts(tmp_path, tokenizer, None, chat)
    names = {i: name for name, i in chat.names.items()}
    texts = {
        kind: "".join(names[i] if i in names else tokenizer.decode([i]) for i in ids) for kind, (ids,) in found.items()
    }
    ask = "<|im_end|>\n<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
    assert texts["mt_bench"] == f"<|im_start|>system\nYou are a helpful, respectful and honest assistant.{ask}"
    assert "function bodies only" in texts["humaneval"] and texts["humaneval"].endswith(ask)
    assert texts["other"].endswith(ask) and "respectful" not in texts["other"]
    assert texts["gsm8k"].count("<|im_start|>assistant\n") == 5
    assert texts["gsm8k"].count("Let's think step by step\nAnswer:<|im_end|>") == 5
    assert texts["gsm8k"].endswith(
        "Question: What is it?\nLet's think step by step\nAnswer:" + ask[ask.index("?") + 1 :]
    )
    assert prompts(tmp_path, tokenizer)["other"] == [tokenizer.encode("What is it?\n\n")]


def test_a_long_prompt_loses_its_beginning_and_not_the_template(tmp_path: Path) -> None:
    tokenizer = from_gguf(gguf_file.read(default_model_path()).fields, 49152)
    assert tokenizer is not None
    (tmp_path / "alpaca.jsonl").write_text(json.dumps({"turns": ["first " + "word " * 900 + "last"]}) + "\n")
    ((ids,),) = prompts(tmp_path, tokenizer, None, chat_template("default")).values()
    text = tokenizer.decode(ids)
    assert text.startswith("system\nYou are a helpful, respectful")
    assert "first" not in text and text.endswith("last\nassistant\n")


def test_a_model_without_a_chat_template_gets_plain_prompts(tiny_folder: Callable[[str], Path]) -> None:
    assert chat_template(str(tiny_folder("compiled llama"))) is None


def test_prose_is_continued_inside_its_documents(tmp_path: Path) -> None:
    tokenizer = from_gguf(gguf_file.read(default_model_path()).fields, 49152)
    assert tokenizer is not None
    text = "The harbour was quiet and the boats were rocking gently beside the wooden landing stage. " * 8
    (tmp_path / "book-1.txt").write_text(text)
    (tmp_path / "letters.txt").write_text(text.upper() + text)
    found = prompts(tmp_path, tokenizer, 3, chat_template("default"))
    assert {kind: len(of_kind) for kind, of_kind in found.items()} == {"book": 3, "letters": 3}
    for ids in found["book"]:
        before = tokenizer.decode(ids[len(tokenizer.start_ids) :])
        assert text.startswith(before + " ")  # plain text up to a word, in no template
