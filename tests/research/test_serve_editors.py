"""`bench serve`: what an editor counts on scripted servers, and the model's files for vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import Field, Sizes, tiny, tokenizer_of

from research.bench import editors
from research.bench.editors import Answered, Editor
from research.bench.typists import Server

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DRAFT, END = b'data: {"choices": [{"text": " one"}]}\n\n', b"data: [DONE]\n\n"
TEXT = "word " * 2000


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def typed_at(first: float, end: float, requests: int = 1, seconds: float = 1.0, answer: bytes = HEAD) -> Answered:
    """What one editor sees of a server that sends a draft and the end after these seconds."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            for pause, data in ((first, DRAFT), (end - first, END), (0, b"")):
                await asyncio.sleep(pause)
                writer.write(chunked(data))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def type() -> Answered:
        server, typed = await asyncio.start_server(handle, "127.0.0.1", 0), Answered()
        async with server:
            here = Server(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {})
            await Editor(0, here, TEXT, lambda prompt: [{"prompt": prompt}] * requests, typed).type(seconds)
        return typed

    return asyncio.run(asyncio.wait_for(type(), 30))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editors, "REST", (0.2, 0.3))


def test_a_key_is_in_time_if_its_first_draft_comes_within_100_ms() -> None:
    quick = typed_at(0, 0.001)
    assert quick.good > len(quick.keys) / 2
    slow = typed_at(0.11, 0.12)
    assert slow.good == 0
    assert max(first for first in slow.keys if first is not None) > 0.11
    assert len(slow.keys) == len(quick.keys), "the same keys are typed"


def first_tokens(fields: dict[str, Field], count: int = 1000) -> dict[str, Field]:
    """The tokenizer with its first tokens only, because transformers reads a file several times, token by token."""

    def having(name: str, change: Callable[[list[Any]], list[Any]]) -> dict[str, Field]:
        kind, values = fields[name].value
        return {name: replace(fields[name], value=(kind, change(values)))}

    kept = set(fields["tokenizer.ggml.tokens"].value[1][:count])
    return (
        fields
        | having("tokenizer.ggml.tokens", lambda tokens: tokens[:count])
        | having("tokenizer.ggml.token_type", lambda kinds: kinds[:count])
        | having("tokenizer.ggml.merges", lambda merges: [pair for pair in merges if pair.replace(" ", "", 1) in kept])
    )


def test_a_model_file_is_written_as_vllm_reads_it(tmp_path: Path, default_gguf: Path) -> None:
    """With the tokenizer, and weights that give the same logits within bfloat16."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from core.models import gguf_file, hf
    from research.bench.vllm_model import write

    fields = first_tokens(tokenizer_of(gguf_file.read(default_gguf)))
    source, folder = tmp_path / "tiny.gguf", tmp_path / "written"
    source.write_bytes(tiny(Sizes(dim=64, inner=128), fields).written())
    write(source, folder)
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], "quantization_config" in config) == (["LlamaForCausalLM"], False)
    written, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model = hf.load(source, "tiny", plain=True)
    ids = model.tokenizer.encode("The capital of France is")
    assert 6 < len(ids) < 20, "some words are one token, others are several"
    assert tokenizer("The capital of France is").input_ids == ids
    expected = model.open().feed_every(ids)
    with torch.inference_mode():
        logits = written(torch.tensor([ids])).logits[0].float()
    assert torch.allclose(logits, expected, rtol=0, atol=0.05 * float(expected.std()))
