"""`bench serve`: its accounting on scripted servers, and a short run on a tiny model."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tiny_gguf import Field, Sizes, tiny, tokenizer_of

from app.service.service import DraftService
from core.errors import InputError, PolydraftError
from research.bench import editors, serve
from research.bench.editors import Answered, Editor, trace
from research.bench.typists import Server
from research.report import BenchOptions
from tests.app.service.test_service import all_of, ask, run, running
from tests.fake_autocomplete import FakeAutocomplete

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


def test_the_wait_for_drafts_goes_on_while_keys_supersede_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editors, "RATE", 50)
    late = typed_at(0.3, 0.3)
    assert late.ends["superseded"] > len(late.keys) / 2
    assert max(late.waits) > 0.3
    assert len(late.waits) < len(late.keys) / 2


def test_tokens_of_superseded_requests_are_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editors, "RATE", 20)
    found = typed_at(0, 5, requests=3)
    assert found.received >= found.late > 0
    assert found.ends["superseded"] > 0
    assert typed_at(0, 0).late == 0


def test_a_failed_request_is_told_by_its_reason() -> None:
    found = typed_at(0, 0, answer=b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert found.ends["Broken: status 500"] == len(found.keys)


def test_a_trace_is_the_same_each_time_and_grows_by_a_character() -> None:
    some = list(itertools.islice(trace(3, TEXT), 200))
    assert some == list(itertools.islice(trace(3, TEXT), 200))
    assert some != list(itertools.islice(trace(4, TEXT), 200))
    assert all(b.startswith(a) and len(b) == len(a) + 1 for (_, a), (_, b) in itertools.pairwise(some))


def test_the_service_counts_what_it_computes_in_vain() -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        run(all_of(service.stream(ask("a", 1, length=5))))
        assert service.work() == {"computed": 5, "dropped": 0}
        fake.model.step_s = 0.02
        run(one_of(service))
        deadline = time.monotonic() + 10
        while not service.work()["dropped"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert 0 < service.work()["dropped"] == service.work()["computed"] - 5 < 30


async def one_of(service: DraftService) -> None:
    """The first event of a request, which is then closed."""
    stream = service.stream(ask("b", 1, length=30))
    await anext(stream)
    await stream.aclose()


# Answers as vLLM's server does: `n` choices in one stream. It has a child, as vLLM has an engine.
VLLM = """#!{python}
import http.server, json, subprocess, sys
assert sys.argv[1:4] == ["-m", "vllm.entrypoints.openai.api_server", "--model"], sys.argv
engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "an engine of {name}"])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (asked["n"], asked["stream"]) == (3, True)
        with open({name!r}, "a") as log:
            print(asked["prompt"], file=log)
        self.send_response(200)
        self.end_headers()
        for index in range(3):
            chunk = json.dumps({{"choices": [{{"index": index, "text": " one"}}]}})
            self.wfile.write(f"data: {{chunk}}\\n\\n".encode())
        self.wfile.write(b"data: [DONE]\\n\\n")

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(sys.platform == "win32", reason="runs a script by its first line")
def test_a_short_run_on_a_tiny_model_beside_vllm(
    own_folders: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "WARM", 0.5)
    monkeypatch.setattr(serve, "JUDGED", 2)
    monkeypatch.setattr(serve, "_as_folder", lambda model, _: model)  # the script reads no model
    log = str(own_folders / "log")
    python = script(own_folders / "python", VLLM.format(python=sys.executable, name=log))
    report = serve.measure(BenchOptions(model=str(tiny_file), minutes=0.025, typists=2, vllm=python), lambda _: None)
    peer, ours, vllm = report.rows
    assert peer["note"] == "measured only with the default model"
    assert (ours["server"], ours["clients"]) == ("Polydraft", 2)
    assert ours["keys"] > 10, ours
    assert ours["keys_with_a_draft"] > 0, ours
    assert 0 <= ours["thrown_away"] < 1
    assert "note" not in ours
    assert vllm["server"] == "vLLM"
    assert vllm["keys_in_time"] > 0.5, vllm
    assert "note" not in vllm
    assert len(Path(log).read_text().splitlines()) >= vllm["keys"], "one request at every key"
    assert [target.name for target in report.targets] == ["goodput at 2 clients / that of vLLM"]
    assert not [each for each in psutil.process_iter() if f"an engine of {log}" in arguments(each)]


def arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.skipif(sys.platform == "win32", reason="runs a script by its first line")
def test_a_vllm_that_cannot_be_measured_is_said(tmp_path: Path) -> None:
    given = r"--vllm /no/python given; the Python of an environment with vLLM expected"
    with pytest.raises(InputError, match=given), serve.vllm_server(BenchOptions(vllm="/no/python")):
        pass
    broken = script(tmp_path / "python", "#!/bin/sh\necho No module named vllm >&2\nexit 1\n")
    (tmp_path / "model").mkdir()
    options = BenchOptions(model=str(tmp_path / "model"), vllm=broken)
    with pytest.raises(PolydraftError, match="No module named vllm"), serve.vllm_server(options):
        pass


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
