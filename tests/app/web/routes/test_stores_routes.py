"""Personal stores over HTTP: what is answered, what is refused, and that nothing half is left behind."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from app.learning.personal import PersonalStores
from app.web.routes import uploads
from core.ngram import StoreError
from core.ngram.shelf import Shelf
from tests.app.learning.test_learner import WAITS
from tests.core.test_disk_full import full
from tests.fake_drafts import ByteTokenizer, FakeDrafts, Server, create_app, scripted_learner
from tests.ngram_tools import add_text
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("one_reader")
TOKENIZER: Any = ByteTokenizer()


class Stores:
    """A server, and the folder as another program sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = PersonalStores(TOKENIZER, folder)
        self.learner = scripted_learner(self.disk, WAITS, quiet=0)
        self.server = Server(create_app(FakeDrafts(), folder, learner=self.learner))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, f"/api/stores{path}", data)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, action: str, status: int = 200, **body: Any) -> dict[str, Any]:
        given, content = self.ask("POST", f"/{action}", body)
        assert given == status, content
        return json.loads(content)

    def add(self, store: str, name: str, content: bytes, ticket: str = "") -> list[dict[str, Any]]:
        query = urlencode({"store": store, "name": name, "ticket": ticket})
        status, lines = self.ask("POST", f"/add?{query}", content)
        assert status == 200, lines
        return [json.loads(line) for line in lines.splitlines()]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    made = Stores(tmp_path_factory.mktemp("data") / "stores")
    yield made
    made.server.stop()
    made.learner.close()


@pytest.fixture
def stores(shared: Stores) -> Stores:
    for row in shared.disk.list():
        shared.disk.delete(row["store"])
    shared.post("create", store="me")
    return shared


# ---------------------------------------------------------------- what the model learned


def trainings(stores: Stores) -> list[dict[str, Any]]:
    return json.loads(stores.ask("GET", "/trainings")[1])["trainings"]


def training(stores: Stores, state: str) -> dict[str, Any]:
    """The training of the store `me`, once it is in this state."""
    (row,) = until(lambda: [row for row in trainings(stores) if (row["store"], row["state"]) == ("me", state)])
    return row


def adapted(stores: Stores) -> Path:
    """The folder of an adapter beside the store `me`, which has enough text to learn again."""
    stores.add("me", "a.txt", b"abc " * 1500)
    stores.add("me", "b.txt", b"a secret")
    folder = stores.folder / "me.adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"learned")
    return folder


@pytest.mark.parametrize("how", ["a document", "a phrase", "a replaced file"])
def test_what_is_forgotten_is_learned_again_from_what_is_left(stores: Stores, how: str) -> None:
    folder = adapted(stores)
    if how == "a document":
        assert stores.post("forget-document", store="me", document="b.txt")["adapter"]
    elif how == "a phrase":
        assert stores.post("forget-phrase", store="me", phrase="secret")["adapter"]
    else:
        stores.add("me", "b.txt", b"other words")
    assert not folder.exists()
    assert training(stores, "running")["again"]
    stores.post("stop-training", store="me")
    training(stores, "ended")
    stores.ask("GET", "")
    training(stores, "ended")  # it does not begin again by itself


def test_a_store_that_is_deleted_is_trained_no_longer(stores: Stores) -> None:
    stores.add("me", "a.txt", b"abc " * 1500)
    stores.post("train", store="me")
    training(stores, "running")
    stores.post("delete", store="me")
    until(lambda: not trainings(stores))


@pytest.mark.parametrize(
    ("action", "value", "seen"),
    [
        ("switch", {"on": False}, lambda store: store.enabled is False),
        ("switch-learning", {"on": True}, lambda store: store.learning is True),
        ("switch-adapter", {"on": False}, lambda store: store.adapting is False),
        ("strength", {"strength": 0.5}, lambda store: store.strength == 0.5),
        ("senders", {"senders": ["ann@example.org", " "]}, lambda store: store.senders == ["ann@example.org"]),
    ],
)
def test_what_is_set_of_a_store_is_set(
    stores: Stores, action: str, value: dict[str, Any], seen: Callable[[Any], bool]
) -> None:
    with stores.disk.at("me") as store:
        assert not seen(store)
    stores.post(action, store="me", **value)
    with stores.disk.at("me") as store:
        assert seen(store)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["../../etc/evil.txt", "/etc/evil.txt", "C:\\evil.txt", "x" * 500 + ".txt"])
def test_a_files_name_reaches_no_other_place(stores: Stores, name: str) -> None:
    assert stores.add("me", name, b"words")[-1]["files"] == 1
    assert stores.disk.list()[0]["documents"][0]["origin"] == name


@pytest.mark.parametrize("name", ["..", "a/", ""])
def test_what_is_no_files_name_is_refused(stores: Stores, name: str) -> None:
    status, content = stores.ask("POST", "/add?" + urlencode({"store": "me", "name": name}), b"words")
    assert status == 409
    assert "as a file's name" in json.loads(content)["message"]


def test_a_file_that_is_too_large_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_FILE", 1000)
    status, content = stores.ask("POST", "/add?" + urlencode({"store": "me", "name": "a.txt"}), b"x" * 1001)
    assert status == 409
    assert "larger than" in json.loads(content)["message"]


def test_who_leaves_while_a_file_is_read_takes_it_back(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    half, go, add_file = threading.Event(), threading.Event(), PersonalStores.add_file

    def slowly(self: PersonalStores, name: str, path: Path, origin: str, progress: Callable[[float], None]) -> Any:
        def halfway(share: float) -> None:
            progress(share)
            if share:
                half.set()
                assert go.wait(60)
                time.sleep(0.1)  # the server has noticed that nobody listens
                progress(1.0)

        return add_file(self, name, path, origin, halfway)

    monkeypatch.setattr(PersonalStores, "add_file", slowly)
    with socket.create_connection(("127.0.0.1", stores.server.port)) as line:
        body = b"words"
        head = "POST /api/stores/add?store=me&name=a.txt HTTP/1.1\r\n"
        head += f"Host: 127.0.0.1:{stores.server.port}\r\nContent-Length: {len(body)}\r\n\r\n"
        line.sendall(head.encode() + body)
        assert half.wait(60)
    time.sleep(0.3)
    go.set()
    with stores.disk.at("me") as store:
        assert store.forget_phrase("nothing").complete  # waits for the writer
    assert stores.disk.list()[0]["documents"] == []


def test_a_stop_counts_even_before_the_file_has_arrived(stores: Stores) -> None:
    stores.post("stop", ticket="a")
    assert stores.add("me", "a.txt", b"some words", ticket="a")[-1] == {"type": "stopped"}
    assert stores.disk.list()[0]["documents"] == []
    assert stores.add("me", "a.txt", b"some words", ticket="b")[-1]["type"] == "added"


def texts(stores: Stores) -> list[tuple[str, ...]]:
    with stores.disk.at("me") as store:
        return [text.passages for text in store.texts()]


def test_a_phrase_that_is_also_a_name_is_forgotten_as_a_phrase(stores: Stores) -> None:
    stores.post("add-phrase", store="me", text="the words typed here")  # its document is called typed
    stores.post("add-phrase", store="me", text="others")
    assert stores.post("forget-phrase", store="me", phrase="typed")["occurrences"] == 1
    assert texts(stores) == [("the words ", " here"), ("others",)]
    assert stores.post("forget-document", store="me", document="others")["documents"] == 0
    assert stores.post("forget-document", store="me", document="typed")["documents"] == 2
    assert texts(stores) == []


def test_an_undo_brings_back_what_the_model_had_learned_and_ends_the_training_of_what_was_left(stores: Stores) -> None:
    folder = adapted(stores)
    ticket = stores.post("forget-document", store="me", document="b.txt", tab="t")["ticket"]
    assert training(stores, "running")["again"]
    assert stores.post("undo-forget", ticket=ticket)["adapter"]
    assert (folder / "adapter_model.safetensors").read_bytes() == b"learned"
    until(lambda: not trainings(stores))
    stores.ask("GET", "")
    assert trainings(stores) == []


def test_a_store_that_was_deleted_brings_nothing_back(stores: Stores) -> None:
    stores.add("me", "a.txt", b"one two three")
    ticket = stores.post("forget-document", store="me", document="a.txt", tab="t")["ticket"]
    stores.post("delete", store="me")
    stores.post("create", store="me")
    stores.post("undo-forget", 409, ticket=ticket)
    assert texts(stores) == []


def test_nothing_that_is_forgotten_is_logged(
    stores: Stores, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    secret = "Featherstonehaugh"
    stores.post("switch-learning", store="me", on=True)
    stores.post("learn", text=f"Dear {secret}", finished=True)
    stores.add("me", f"{secret}.txt", f"Yours, {secret}".encode())
    stores.post("search", text=secret)
    stores.post("forget-phrase", store="me", phrase=secret, dry=True)
    ticket = stores.post("forget-phrase", store="me", phrase=secret, tab="t")["ticket"]
    stores.post("undo-forget", ticket=ticket)
    stores.post("undo-forget", 409, ticket=ticket)
    stores.post("forget-document", store="me", document=f"{secret}.txt")
    stores.post("forget-phrase", 422, store="me", phrase=secret, dry=secret)
    stores.post("forget-phrase", 409, store="none", phrase=secret)
    assert secret not in caplog.text
    assert secret not in "".join(capfd.readouterr())


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_with_a_full_disk_the_server_says_so_and_goes_on(stores: Stores) -> None:
    stores.post("add-phrase", store="me", text="abc")
    with stores.disk.at("me"), full():  # open, as the engine has it
        for action, body in (
            ("add-phrase", {"text": "words"}),
            ("forget-phrase", {"phrase": "abc", "tab": "t"}),
            ("switch", {"on": False}),
        ):
            assert "disk is full" in stores.post(action, 409, store="me", **body)["message"]
        assert "disk is full" in stores.post("create", 409, store="you")["message"]
        status, line = stores.ask("POST", "/add?store=me&name=a.txt", b"words " * 1000)
        assert status == 409, line
        assert "File too large" in json.loads(line)["message"]
        assert stores.post("search", text="abc")["found"][0]["occurrences"] == {"typed": 1}
    assert stores.add("me", "a.txt", b"words " * 1000)[-1]["type"] == "added"


@pytest.mark.parametrize(
    ("action", "body", "status", "said"),
    [
        ("create", {"store": "../evil"}, 409, "given as the name of a store"),
        ("switch", {"store": "none", "on": True}, 409, "no personal store called 'none'; there are: me"),
        ("switch", {"store": "me"}, 422, "on is missing"),
        ("search", {"text": "   "}, 409, "No words given"),
        ("forget-phrase", {"store": "me", "phrase": " "}, 409, "No words given"),
        ("undo-forget", {"ticket": "none"}, 409, "the text is kept only while the page is open"),
        ("learn", {"text": "x", "finished": "yes"}, 422, "true or false is expected"),
    ],
)
def test_what_is_wrong_is_said(stores: Stores, action: str, body: dict[str, Any], status: int, said: str) -> None:
    assert said in stores.post(action, status, **body)["message"]


# ---------------------------------------------------------------- beneath


def test_a_store_made_anew_under_a_deleted_name_is_the_one_that_counts(tmp_path: Path) -> None:
    shelf, disk = Shelf(TOKENIZER, tmp_path), PersonalStores(TOKENIZER, tmp_path)
    for text in ("abc", "abd"):
        disk.create("me")
        with disk.at("me") as store:
            store.learn(text)
        ids = TOKENIZER.encode(text)
        assert shelf.active()[0].count(ids) > 0
        disk.delete("me")
    assert shelf.active() == []
    shelf.close()


def test_the_mark_of_removals_is_the_same_everywhere_and_differs_after_each(tmp_path: Path) -> None:
    disk, shelf = PersonalStores(TOKENIZER, tmp_path), Shelf(TOKENIZER, tmp_path, in_background=True)

    def mark() -> str:
        shelf.active()
        assert shelf.removed == disk.followed()["removed"]
        return shelf.removed

    disk.create("me")
    disk.create("off")
    with disk.at("me") as store, disk.at("off") as off:
        marks = [mark()]
        store.learn("a secret")
        off.switch(False)
        off.learn("another")
        assert mark() == marks[0], "nothing was removed"
        removed = store.forget_phrase("secret", keep=1000).removed
        marks.append(mark())
        off.forget_phrase("another")
        marks.append(mark())
        assert removed is not None
        store.undo(removed)
        marks.append(mark())
    disk.delete("off")
    disk.create("off")
    marks.append(mark())
    assert len(set(marks)) == len(marks)
    shelf.close()


def test_deleting_overwrites_the_text(tmp_path: Path) -> None:
    disk = PersonalStores(TOKENIZER, tmp_path)
    disk.create("me")
    add_text(disk, "me", "a", "a very secret thing")
    held = (tmp_path / "me.sqlite").open("rb")  # what an undeleter would find
    disk.delete("me")
    assert b"secret" not in held.read()
    held.close()
    with pytest.raises(StoreError, match="no personal store"):
        disk.delete("me")
