"""Adapters that are trained beside the server: paused while somebody types, stopped by a click, ended with the server,
and trained again from what is left when text was forgotten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from app.learning.child import Order, answers
from app.learning.learner import KNOWN, QUIET, STOPPED, TOO_LITTLE, Learner
from app.options import typist
from app.service.background import learner_for, resume_learning
from core.adapters import Adapters
from core.errors import InputError
from core.models import hf
from core.models.adapter import load, read_tensors
from core.ngram.personal import PersonalStore
from tests.app.service.test_service import all_of, ask, run, running
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import ByteTokenizer
from tests.ngram_tools import add_text
from tests.waiting import until
from training.adapter import State
from training.personal import STATE

SAYS = """
import json, sys, time
order = json.loads(sys.stdin.readline())
def say(**answer):
    print(json.dumps(answer), flush=True)
def stage(share, curve=()):
    say(stage={"description": "Training", "share": share, "left": 60.0, "held_out": None, "curve": curve})
def outcome(better=True, share=1.0, new=True):
    say(outcome={"result": {"better": better}, "share": share, "new": new, "curve": [[0, -4.0], [64, -3.0]]})
"""
WAITS = SAYS + "stage(0.5, [[0, -4.0]])\nsys.stdin.read()\nsay(stopped=True)\n"


class Trained:
    """A learner whose process runs a script, with what it asks for."""

    def __init__(self, script: str, quiet: float = 0.05) -> None:
        self.removals: dict[str, int] = {}
        self.gave_up: list[str] = []
        self.tokens = 5000
        self.learner = Learner(self.order, self.gave_up.append, [sys.executable, "-c", script], quiet)

    def order(self, store: str) -> tuple[Order, int]:
        if self.tokens < 4000:
            raise InputError(f"The store {store} has too few tokens.")
        return Order(f"{store}.sqlite"), self.removals.get(store, 0)

    def row(self, store: str = "me", relearning: bool = False) -> dict[str, Any]:
        return {"store": store, "removals": self.removals.get(store, 0), "relearning": relearning}

    def now(self, store: str = "me") -> dict[str, Any]:
        return next((row for row in self.learner.trainings() if row["store"] == store), {})

    def until(self, condition: Callable[[dict[str, Any]], Any], store: str = "me") -> dict[str, Any]:
        return until(lambda: condition(row := self.now(store)) and row)

    def ended(self, store: str = "me") -> dict[str, Any]:
        return self.until(lambda row: row.get("state") == "ended", store)


@pytest.fixture
def trained() -> Iterator[Callable[..., Trained]]:
    made: list[Trained] = []

    def make(script: str, quiet: float = 0.05) -> Trained:
        made.append(Trained(script, quiet))
        return made[-1]

    yield make
    for one in made:
        one.learner.close()
    assert all(not child.is_running() for child in psutil.Process().children() if "sqlite" in str(child.cmdline()))


def test_a_training_shows_how_far_it_is_and_ends_in_silence_if_the_adapter_helps(
    trained: Callable[..., Trained],
) -> None:
    one = trained(SAYS + "stage(0.25, [[0, -4.0]])\nsys.stdin.readline()\noutcome()")
    one.learner.start("me")
    row = one.until(lambda row: row["share"])
    assert (row["state"], row["description"], row["share"], row["left"]) == ("running", "Training", 0.25, 60.0)
    assert row["curve"] == [[0, -4.0]]
    one.learner.typed()  # writes a line
    row = one.ended()
    assert (row["message"], row["failed"], row["curve"]) == ("", False, [[0, -4.0], [64, -3.0]])


@pytest.mark.parametrize(
    ("script", "message", "failed"),
    [
        ("outcome(better=False)", TOO_LITTLE, False),
        ("outcome(new=False)", KNOWN, False),
        ("outcome(share=0.6)", "ended after 60% of the training", False),
        ("say(refused='The disk is full.')", "The disk is full.", True),
        ("raise ValueError('no such layer')", "ended with an error: ValueError: no such layer", True),
        ("import os; os.kill(os.getpid(), 9)", "memory was short", True),
        ("import os; os.write(1, b'{\"half\": '); os._exit(3)", "no output", True),
    ],
)
def test_every_end_is_said_in_words(trained: Callable[..., Trained], script: str, message: str, failed: bool) -> None:
    one = trained(SAYS + script)
    one.learner.start("me")
    row = one.ended()
    assert message in row["message"]
    assert row["failed"] == failed


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGKILL")
def test_a_process_that_is_killed_for_memory_leaves_nothing_half_and_the_next_one_trains(
    trained: Callable[..., Trained], tmp_path: Path
) -> None:
    with PersonalStore.open(tmp_path / "me.sqlite", ByteTokenizer(), create=True) as store:  # pyright: ignore[reportArgumentType]
        one = trained(
            SAYS
            + f"""
import os, pathlib
folder = pathlib.Path({str(store.learned)!r})
if folder.exists():
    outcome()
else:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("whole")
    (folder / ".adapter_model.safetensors.1234.tmp").write_text("half, with what it has read")
    os.kill(os.getpid(), 9)
"""
        )
        cleaned: list[str] = []

        def clean(name: str) -> None:
            cleaned.append(name)
            with PersonalStore.open(store.path) as opened:
                opened.remove_unfinished()

        one.learner.clean = clean
        one.learner.start("me")
        row = one.ended()
        assert "memory was short. Close other programs first." in row["message"]
        assert row["failed"]
        assert [path.name for path in store.learned.iterdir()] == ["adapter_config.json"]
        one.learner.start("me")
        assert (one.ended()["message"], cleaned) == ("", ["me", "me"])


def test_it_pauses_while_somebody_types_and_a_key_never_waits(trained: Callable[..., Trained]) -> None:
    one = trained(
        SAYS + "for line in sys.stdin:\n    say(stage=dict(description=line.strip(), share=0, left=None, curve=[]))",
        quiet=0.5,
    )
    one.learner.start("me")
    one.until(lambda row: row["state"] == "running")
    began = time.monotonic()
    for _ in range(30):
        before = time.perf_counter()
        one.learner.typed()
        assert time.perf_counter() - before < 0.05
        time.sleep(0.01)
        assert one.now()["description"] in ("Loading the model", "pause")
    row = one.until(lambda row: row["description"] == "pause")
    assert row["paused"]
    row = one.until(lambda row: row["description"] == "go")
    assert not row["paused"]
    assert time.monotonic() - began > 0.3


def test_one_click_stops_it_and_another_goes_on(trained: Callable[..., Trained]) -> None:
    one = trained(WAITS)
    one.learner.start("me")
    one.until(lambda row: row["share"])
    one.learner.start("me")  # a second click changes nothing
    assert len(one.learner.trainings()) == 1
    one.learner.stop("me")
    row = one.ended()
    assert (row["message"], row["failed"], row["stopping"]) == (STOPPED, False, False)
    one.learner.start("me")
    one.until(lambda row: row["share"])


def test_one_store_after_the_other(trained: Callable[..., Trained]) -> None:
    one = trained(WAITS)
    one.learner.start("me")
    one.learner.start("work")
    one.until(lambda row: row["share"])
    assert one.now("work")["state"] == "waiting"
    one.learner.stop("work")
    assert one.now("work")["state"] == "ended"
    one.learner.start("work")
    one.learner.stop("me")
    one.until(lambda row: row["share"], "work")


def test_when_text_is_forgotten_it_learns_again_from_what_is_left(trained: Callable[..., Trained]) -> None:
    one = trained(WAITS)
    one.learner.follow([one.row(), one.row("work"), {"store": "old", "problem": "damaged"}])
    assert one.learner.trainings() == []
    one.learner.follow([one.row(relearning=True)])
    assert one.until(lambda row: row["share"])["again"]
    one.learner.follow([one.row(relearning=True)])  # it is under way
    assert not one.now()["stopping"]
    one.removals["me"] = 1  # more is forgotten
    one.learner.follow([one.row(relearning=True)])
    one.until(lambda row: row["state"] == "running" and not row["stopping"] and not row["share"])
    assert one.until(lambda row: row["share"])["again"]
    assert one.gave_up == []
    one.learner.stop("me")
    one.ended()
    assert one.gave_up == ["me"]


def test_the_server_takes_the_process_with_it(trained: Callable[..., Trained]) -> None:
    one, others = trained(WAITS), psutil.Process().children()  # a browser of other tests
    one.learner.start("me")
    one.until(lambda row: row["share"])
    (child,) = {*psutil.Process().children()} - {*others}
    one.learner.close()
    assert not child.is_running()
    assert one.gave_up == []  # the next server goes on


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGKILL")
def test_a_server_that_is_killed_leaves_no_process(tmp_path: Path, tiny_file: Path) -> None:
    """The process is the real one: it goes last, pauses while somebody types, and leaves the state of its training."""
    # The machine is busy with other tests: at the lowest priority the training would hardly run.
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n\nnice = os.nice\nos.nice = lambda increment: nice(increment > 0)\n"
    )
    with PersonalStore.open(tmp_path / "me.sqlite", hf.load(tiny_file, "tiny").tokenizer, create=True) as store:
        store.add("a.txt", ["the cat sat on a mat. " * 800])
        learned = store.learned
    script = f"""
        import json, time
        from app.learning.learner import Learner
        from app.learning.child import Order

        learner = Learner(lambda store: (Order({str(store.path)!r}, {str(tiny_file)!r}), 0), quiet=2.0)

        def until(wanted):
            while not wanted(row := learner.trainings()[0]):
                assert row["state"] != "ended", row
                time.sleep(0.01)
            return row

        learner.start("me")
        until(lambda row: row["share"])
        learner.typed()
        until(lambda row: row["paused"])
        time.sleep(0.8)  # a step may have ended just before
        shares = [row["share"] for row in learner.trainings()]
        time.sleep(0.5)
        shares += [row["share"] for row in learner.trainings()]
        print(json.dumps([shares, until(lambda row: row["share"] > shares[0])]), flush=True)
        time.sleep(60)
    """
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}  # one thread suits tiny models best
    server = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, env=env)
    assert server.stdout is not None
    (before, paused), row = json.loads(server.stdout.readline())
    assert before == paused
    (child,) = psutil.Process(server.pid).children()
    assert child.nice() == os.nice(0) + 1
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
    psutil.wait_procs([child], 30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    tensors, about = read_tensors(learned / STATE)
    state = State.of(tensors, about, about["identity"])
    assert state is not None and state.steps > 0, "the next training goes on from it"
    assert [list(point) for point in state.curve[: len(row["curve"])]] == row["curve"]


def test_the_servers_learner_trains_for_its_model_and_pauses_at_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.ngram.shelf.stores_folder", lambda: tmp_path)
    monkeypatch.setattr("app.learning.learner.COMMAND", (sys.executable, "-c", SAYS + "say(refused=json.dumps(order))"))
    fake = FakeAutocomplete()
    fake.model.tokenizer = ByteTokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    fake.ngrams = SimpleNamespace(path="base.ngram")  # pyright: ignore[reportAttributeAccessIssue]
    with running(fake) as service:
        learner = learner_for(service)
        run(all_of(service.stream(ask("a", 1, length=2))))
        stores = service.stores()
        stores.create("me")
        left = tmp_path / "me.adapter" / ".training.safetensors.1234.tmp"
        left.parent.mkdir()
        left.write_text("of a process that was killed with its server")
        resume_learning(learner, service)
        assert not left.exists()
        add_text(stores, "me", "a.txt", "abc " * 1500)
        typed = time.monotonic()
        run(all_of(service.stream(ask("a", 2, length=2))))
        learner.start("me")
        while learner.trainings()[0]["state"] != "ended":
            time.sleep(0.01)
        assert time.monotonic() - typed >= QUIET
        order = json.loads(learner.trainings()[0]["message"])
        assert order == asdict(Order(str(tmp_path / "me.sqlite"), "scripted", "base.ngram"))

        add_text(stores, "me", "secret.txt", "a secret")
        left.parent.mkdir(exist_ok=True)
        left.with_name("weights").write_text("learned with the secret")
        with stores.at("me") as store:
            assert store.forget_document("secret.txt").adapter
        resume_learning(learner, service)
        assert learner.trainings()[0]["again"], "without a click"
        learner.close()


# ---------------------------------------------------------------- the process


def said(*lines: str) -> tuple[Iterator[str], Callable[[str | None], None]]:
    """The lines of an input that stays open, and a function that adds one; None ends it."""
    queue = SimpleQueue[str | None]()
    for line in lines:
        queue.put(line)
    return iter(queue.get, None), queue.put


def test_an_order_of_the_server_makes_an_adapter_that_drafts_can_use(
    tmp_path: Path, tiny_folder: Callable[[str], Path], one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typist, "PASSAGE", 60)  # short passages are typed as long ones are
    monkeypatch.setattr("training.held_out.MOST_WINDOWS", 8)
    folder = tiny_folder("compiled llama")
    with PersonalStore.open(tmp_path / "me.sqlite", hf.load(folder, "tiny").tokenizer, create=True) as store:
        store.add("a.txt", ["the cat sat on a mat. " * 300])
        order = Order(str(store.path), str(folder), minutes=0.05, memory=100)  # this process runs other tests too
        lines, _ = said(json.dumps(asdict(order)))
        *stages, last = (json.loads(json.dumps(answer)) for answer in answers(lines))
        assert any(each["stage"]["share"] for each in stages)
        assert last["outcome"]["result"]["better"]
        assert last["outcome"]["curve"]
        result = load(store.learned).result
        assert (result.better, result.characters > 0) == (True, True)
        drafts = Adapters(hf.load(folder, "tiny"))
        assert drafts.use([(store.learned, None)])
        assert drafts.on


def test_text_that_another_program_removes_starts_the_training_anew(trained: Callable[..., Trained]) -> None:
    one = trained(SAYS + "sys.stdin.readline()\nsay(refused='Text was forgotten.')")
    one.learner.start("me")
    one.until(lambda row: row["state"] == "running")
    one.removals["me"] = 1
    one.learner.typed()  # the script ends
    one.until(lambda row: row["again"])
    assert one.gave_up == []
