"""Whatever lies in the app's files, every route answers, and drafts go on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import platformdirs
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

import ngram_builder
from app.machine import running
from app.service.service import DraftService
from app.web.site import create_app
from core.autocomplete import Autocomplete
from core.files import recall
from core.models.costs import known
from core.ngram.base import BaseShelf
from core.ngram.personal import PersonalStore
from core.ngram.shelf import Shelf
from core.speculative import calibration
from tests.ngram_tools import WordTokenizer
from tests.paths import with_compiled_code
from tests.table_model import TableModel

EXAMPLES = 5  # of each file; more find no more errors, and take longer
ID = "0123456789abcdef"
_n = count(1)

scalars = st.none() | st.booleans() | st.integers(-3, 3)
scalars |= st.sampled_from([1e300, -0.5, float("inf"), 10**400, 2**63])
scalars |= st.sampled_from(["", "a\0b", "\ud800", "../x", "~nosuch", "0", "nan", "x" * 5000])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
)
no_json = st.sampled_from([b"", b"{", b"\xff\xfe\x00", b"[" * 10_000, b"9" * 5000, b'{"a": NaN}', b"SQLite format 3\0"])


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """The value with one part replaced or left out."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 5)):
        copy, at = value.copy(), draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if draw(st.integers(0, 3)):
            copy[at] = draw(changed(value[at]))
        else:
            del copy[at]
        return copy
    return draw(anything)


def as_file(value: Any) -> st.SearchStrategy[bytes]:
    """Bytes in place of a file that contains this value."""
    return changed(value).map(lambda found: json.dumps(found).encode()) | no_json


# ---------------------------------------------------------------- the app and its files


class Disk:
    """The app on a model of six tokens, and its folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model: Any = TableModel()
        self.model.tokenizer.fingerprint, self.model.tokenizer.name = "f" * 64, "letters"
        self.model.tokenizer.encode = lambda text: [min(max(ord(letter) - 97, 0), 5) for letter in text]
        self.data = Path(platformdirs.user_data_path("polydraft", appauthor=False))
        self.store = folder / "good.ngram"
        tokenizer: Any = WordTokenizer()
        (folder / "words.txt").write_text("1 2 3 4 " * 30)
        tokenizer.fingerprint = "f" * 64
        ngram_builder.build([str(folder / "words.txt")], self.store, tokenizer, name="words")
        self.service = DraftService(self.load, "table", pace=0)
        self.service.start()
        self.app: FastAPI = create_app(self.service)
        # In one event loop of this thread; Starlette's own client passes each part of a request to another one.
        self.loop = asyncio.new_event_loop()
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7893", follow_redirects=True)
        while not self.service.loaded:
            time.sleep(0.01)
        self.fill()
        shutil.copytree(self.data, folder / "pristine")

    def load(self, name: str) -> Autocomplete:
        return Autocomplete(
            self.model, bases=BaseShelf("f" * 64), shelf=Shelf(self.model.tokenizer, in_background=True)
        )

    def fill(self) -> None:
        """Writes one of each file."""
        for path, body in {**BODIES, "/api/documents/keep": {"where": "files"}}.items():
            if path.endswith(("add", "create", "save", "keep", "write")) and body is not None:
                self.loop.run_until_complete(self.post(path, body))
        with closing(PersonalStore.open(self.data / "stores" / "me.sqlite", self.model.tokenizer)) as store:
            store.learn("abcd" * 50, 1)
            store.set_strength(0.5)
        adapter = self.data / "stores" / "me.adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text(json.dumps(ADAPTER))
        self.write("adapter", json.dumps(WEIGHTS).encode())
        self.write("calibration", json.dumps(self.calibration()).encode())

    def restore(self) -> None:
        shutil.rmtree(self.data)
        shutil.copytree(self.folder / "pristine", self.data)

    def calibration(self) -> Any:
        made = json.loads(calibration.SHIPPED[0].read_text())
        return made | {"fingerprint": calibration.fingerprint(self.model), "whitening": [1.0] * self.model.dim}

    def write(self, what: str, content: bytes) -> None:
        """Puts the content in place of one of the files."""
        if what == "choice":
            (self.data / "base-stores.json").write_bytes(content)
        elif what == "calibration":
            path = calibration.user_file(self.model)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        elif what == "adapter":
            header = content if content.startswith(b"{") else b"{}"
            path = self.data / "stores" / "me.adapter" / "adapter_model.safetensors"
            path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        elif what == "adapter's configuration":
            (self.data / "stores" / "me.adapter" / "adapter_config.json").write_bytes(content)
        elif what == "manifest":
            whole = self.store.read_bytes()
            length = struct.unpack_from("<I", whole, 12)[0]
            sections = whole[-(-(48 + length) // 64) * 64 :]
            head = struct.pack("<8sII32s", whole[:8], 1, len(content), hashlib.sha256(content).digest()) + content
            (self.folder / "bad.ngram").write_bytes(head + bytes(-len(head) % 64) + sections)
            choice = [{"file": str(self.folder / f"{name}.ngram"), "weight": 1, "on": True} for name in ("bad", "good")]
            (self.data / "base-stores.json").write_text(json.dumps({"version": 1, "stores": choice}))
        elif what == "preset":
            with closing(sqlite3.connect(self.data / "presets.sqlite")) as file, file:
                file.execute("UPDATE presets SET content = ?", [content.decode("utf-8", "replace")])
        elif what == "presets' file":
            (self.data / "presets.sqlite").write_bytes(content)
        elif what == "personal store's file":
            (self.data / "stores" / "me.sqlite").write_bytes(content)
        elif what == "note":
            (self.data / "documents" / ".polydraft" / f"{ID}.json").write_bytes(content)

    def manifest(self) -> Any:
        whole = self.store.read_bytes()
        return json.loads(whole[48 : 48 + struct.unpack_from("<I", whole, 12)[0]])

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()
        self.service.close()

    async def post(self, path: str, body: Any) -> None:
        if path == "/api/drafts":
            body = body | {"n": next(_n)}
        response = await self.client.post(path, json=body)
        assert response.status_code < 500 or response.status_code == 503, (path, response.text)
        if path == "/api/drafts":
            assert json.loads(response.text.splitlines()[-1])["type"] == "stats", response.text

    def ask_every_route(self, under: tuple[str, ...] = ("/",)) -> None:
        """Every route under these paths answers, and drafts are made."""
        self.loop.run_until_complete(self._ask_every_route(under))

    async def _ask_every_route(self, under: tuple[str, ...]) -> None:
        for route in self.app.routes:
            if isinstance(route, Route | APIRoute) and "GET" in (route.methods or ()) and route.path.startswith(under):
                path = route.path.replace("{id}", ID).replace("{name:path}", "table")
                assert (await self.client.get(path)).status_code < 500, path
        for path, body in BODIES.items():
            if body is not None and path.startswith(under):
                await self.post(path, body)


DRAFT = {"tab": "a", "n": 1, "before": "abc", "settings": {"length": 2}}
PRESET = {"name": "mine", "rule": "top-p", "values": {"top_p": 0.5}, "drafting": {"tau": 0.5}}
DOCUMENT = {"id": ID, "title": "a", "text": "b", "base": None, "caret": [0, 0], "private": [], "keys": {}}
# By route, in this order: those that remove come last. None: covered by tests of its own, because it takes seconds.
BODIES: dict[str, Any] = {
    "/api/drafts": DRAFT,
    "/api/stores/create": {"store": "me"},
    "/api/stores/switch": {"store": "me", "on": True},
    "/api/stores/switch-learning": {"store": "me", "on": True},
    "/api/stores/senders": {"store": "me", "senders": ["ann@example.org"]},
    "/api/stores/switch-adapter": {"store": "me", "on": True},
    "/api/stores/strength": {"store": "me", "strength": None},
    "/api/stores/add-phrase": {"store": "me", "text": "abcabc"},
    "/api/stores/search": {"text": "abc"},
    "/api/stores/learn": {"text": "abcabc", "finished": True},
    "/api/stores/train": {"store": "me"},
    "/api/stores/stop-training": {"store": "me"},
    "/api/stores/stop": {"ticket": "a"},
    "/api/stores/add": None,
    "/api/model": None,
    "/api/models/download": None,
    "/api/models/stop-download": {},
    "/api/base-stores/add": {"file": "GOOD"},
    "/api/base-stores/change": {"file": "GOOD", "on": True, "weight": 0.5},
    "/api/chain": {"rule": "top-p"},
    "/api/view": {"tab": "a", "rules": {"top-p": {}}},
    "/api/sweep": {"tab": "a", "rules": {"top-p": {}}},
    "/api/presets/save": PRESET,
    "/api/presets/import": {"text": json.dumps(PRESET | {"name": "other"})},
    "/api/documents/keep": {"where": "files"},
    "/api/documents/write": DOCUMENT | {"created": 1, "changed": 1, "binned": None},
    "/api/documents/bin": {"id": ID, "on": True},
    "/v1/completions": {"prompt": "abc", "max_tokens": 2},
    "/infill": {"input_prefix": "abc", "n_predict": 2},
    "/completion": {"prompt": "abc", "n_predict": 2},
    "/completions": {"prompt": "abc", "n_predict": 2},
    "/v1/fim/completions": {"prompt": "abc", "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2},
    "/tokenize": {"content": "abc"},
    "/detokenize": {"tokens": [1]},
    "/api/generate": {"prompt": "abc", "stream": False},
    "/api/show": {"model": "polydraft"},
    "/pair/code": {},
    "/pair": {"code": "ABC-234"},
    "/api/leave": {"tab": "b"},
    "/api/base-stores/remove": {"file": "GOOD"},
    "/api/presets/delete": {"name": "mine"},
    "/api/documents/remove": {"id": ID},
    "/api/documents/set-aside": {"note": "a.json"},
    "/api/stores/forget-phrase": {"store": "me", "phrase": "abc"},
    "/api/stores/forget-document": {"store": "me", "document": "abc"},
    "/api/stores/undo-forget": {"ticket": "a"},
    "/api/stores/delete": {"store": "me"},
}
ADAPTER = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "none", "target_modules": ["q_proj"]}
WEIGHTS = {
    "__metadata__": {"format": "pt", "polydraft": json.dumps({"version": 1, "model": "m", "strength": 1})},
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": {
        "dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
    "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight": {
        "dtype": "F32", "shape": [2, 1], "data_offsets": [8, 16]},
}  # fmt: skip


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    folder = tmp_path_factory.mktemp("disk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        with_compiled_code(folder / "cache")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for body in BODIES.values():
            if body is not None and "file" in body:
                body["file"] = str(folder / "good.ngram")
        made = Disk(folder)
        yield made
        made.close()


def test_every_route_that_changes_something_is_asked(disk: Disk) -> None:
    posted = {route.path for route in disk.app.routes if isinstance(route, Route) and "POST" in (route.methods or ())}
    assert posted == set(BODIES)
    disk.ask_every_route()


CONTENTS: dict[str, Callable[[Disk], Any]] = {
    "choice": lambda disk: json.loads((disk.folder / "pristine" / "base-stores.json").read_text()),
    "manifest": Disk.manifest,
    "preset": lambda disk: PRESET,
    "presets' file": lambda disk: {},
    "personal store's file": lambda disk: {},
    "adapter": lambda disk: WEIGHTS,
    "adapter's configuration": lambda disk: ADAPTER,
    "calibration": Disk.calibration,
    "note": lambda disk: json.loads((disk.folder / f"pristine/documents/.polydraft/{ID}.json").read_text()),
}


# Files that are wrong at the same time: none of them keeps another one from being read.
TOGETHER = [
    ("choice", "preset", "adapter", "note", "calibration"),
    ("manifest", "presets' file", "adapter's configuration"),
    ("personal store's file",),
]


@pytest.mark.parametrize("files", TOGETHER, ids=", ".join)
def test_no_content_of_a_file_disturbs_a_route(files: tuple[str, ...], disk: Disk) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.fixed_dictionaries({what: as_file(CONTENTS[what](disk)) for what in files}))
    def answers(contents: dict[str, bytes]) -> None:
        disk.restore()
        for what, content in contents.items():
            disk.write(what, content)
        disk.ask_every_route()

    answers()


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a file": Path.touch,
    "a link to itself": lambda path: path.symlink_to(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
}
PLACES = [
    ("base-stores.json", "a device"), ("presets.sqlite", "a link to itself"), ("stores", "a file"),
    ("stores/me.sqlite-wal", "a folder"), ("stores/me.adapter", "a link to itself"), ("documents", "a link to itself"),
    ("documents/bin", "a file"), ("models", "a file"), ("calibrations", "a device"),
]  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such links")
@pytest.mark.parametrize(("name", "odd"), PLACES)
def test_whatever_stands_in_the_place_of_a_file_disturbs_no_route(disk: Disk, name: str, odd: str) -> None:
    disk.restore()
    path = disk.data / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    ODD[odd](path)
    disk.ask_every_route(("/api/stores", "/api/base-stores", "/api/p", "/api/doc", "/api/models", "/api/drafts"))


CELLS = [
    ("about", "value", f"key = '{key}'") for key in ("removals", "strength", "vocab_size", "enabled", "fingerprint")
]
CELLS += [("documents", name, "1") for name in ("origin", "added", "times")]
CELLS += [("passages", name, "1") for name in ("text", "tokens", "ids")]


@pytest.mark.parametrize(("table", "column", "where"), CELLS)
def test_no_value_in_a_personal_store_disturbs_a_route(table: str, column: str, where: str, disk: Disk) -> None:
    for value in ("nan", 10**18, b"\xff\xff\xff"):
        disk.restore()
        with closing(sqlite3.connect(disk.data / "stores" / "me.sqlite")) as file, file:
            assert file.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", [value]).rowcount
        disk.ask_every_route(("/api/stores", "/api/drafts", "/api/presets", "/v1/completions"))


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(as_file({"process": 1, "started": 1.0, "page": True}), as_file({"a": {"sizes": [1, 2], "ms": [1, 2]}}))
def test_no_content_of_locks_and_caches_disturbs_a_start(disk: Disk, lock: bytes, cache: bytes) -> None:
    running._file(1).write_bytes(lock)
    assert running.at(1) is None
    with running.marked(2, {}):
        assert running.at(2) == {}
    path = Path(platformdirs.user_cache_path("polydraft")) / "costs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cache)
    assert isinstance(recall(path), dict)
    known(disk.model, "tokens")
