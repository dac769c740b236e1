"""Learning from a click to its stop: the real server, page and training process, with a tiny model."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import psutil
import pytest
from playwright.sync_api import BrowserContext, expect

from app.learning.learner import QUIET
from core.models import hf
from core.models.adapter import read_tensors, write
from core.ngram.personal import PersonalStore
from measure.bench.child import Child, running_app
from measure.report import BenchOptions
from training.adapter import State
from training.personal import STATE

pytestmark = pytest.mark.timeout(600)

PATIENCE = 200.0
OWN, SECRET = "the cat sat on a mat. ", "zq7 zq7 zq7 "
WEIGHT = 1e4  # seconds that a state says it took, which no training does


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Iterator[PersonalStore]:
    """The store `me` of the servers of this file."""
    home = tmp_path_factory.mktemp("home")
    # The machine is busy with other tests: at the lowest priority the training would hardly run.
    (home / "sitecustomize.py").write_text("import os\n\nos.nice = lambda increment: 0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(home))
        patch.setenv("OMP_NUM_THREADS", "1")  # it suits tiny models best
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(home), os.environ.get("PYTHONPATH")])))
        from core.ngram.shelf import stores_folder

        folder = stores_folder()
        folder.mkdir(parents=True)
        with PersonalStore.open(folder / "me.sqlite", hf.load(tiny_file, "tiny").tokenizer, create=True) as made:
            made.add("a.txt", [OWN * 9000])
            yield made


class Site:
    """A server, as the page's script asks it."""

    def __init__(self, child: Child) -> None:
        self.child = child
        child.wait(child.ready)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        request = Request(self.child.url + path, json.dumps(body).encode(), self.child.headers)
        request.add_header("Content-Type", "application/json")
        with build_opener(ProxyHandler({})).open(request, timeout=60) as response:
            return json.loads(response.read())

    def training(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Waits until the training of `me` is as wanted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = json.loads(self.child.get("/api/stores/trainings") or b"{}").get("trainings") or [{}]
            if wanted(found[0]):
                return found[0]
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    def trains(self) -> dict[str, Any]:
        """Waits until steps of the training are done."""
        return self.training(lambda row: row.get("description") == "Training" and row["state"] == "running")


@pytest.fixture(scope="module")
def site(store: PersonalStore, tiny_file: Path) -> Iterator[Callable[[], Site]]:
    """A function that returns the server that runs, and starts one if none does."""
    with ExitStack() as ends:
        found: list[Site] = []

        def running() -> Site:
            if not found or found[-1].child.process.poll() is not None:
                found.append(Site(ends.enter_context(running_app(BenchOptions(model=str(tiny_file))))))
            return found[-1]

        yield running


def state_of(store: PersonalStore) -> tuple[State, str]:
    """The state of a training, and what identifies it."""
    tensors, about = read_tensors(store.learned / STATE)
    found = State.of(tensors, about, about["identity"])
    assert found is not None
    return found, about["identity"]


@pytest.mark.browser
def test_a_click_trains_typing_pauses_it_another_click_stops_it_and_the_next_goes_on(
    context: BrowserContext, store: PersonalStore, site: Callable[[], Site]
) -> None:
    page, server = context.new_page(), site()
    page.set_default_timeout(PATIENCE * 1000)
    expect.set_options(timeout=PATIENCE * 1000)
    page.goto(server.child.page)
    page.wait_for_function("window.polydraft !== undefined")
    page.get_by_role("tab", name="My writing").click()
    me = page.locator(".ps-store[data-store=me]")
    doing = me.locator(".ps-doing")
    me.get_by_role("button", name="Learn my style").click()
    expect(doing).to_have_text(re.compile(r"Training, \d+%, .* left"))
    expect(me.locator(".ps-curve")).to_contain_text("more probable per word or part of a word so far")

    page.get_by_role("tab", name="Write").click()
    page.get_by_role("textbox", name="Your text").focus()
    page.keyboard.type("the cat")
    page.get_by_role("tab", name="My writing").click()
    expect(doing).to_have_text("Paused while you type")
    share = server.training(lambda row: row["paused"])["share"]
    time.sleep(QUIET / 3)
    waiting = server.training(lambda row: row)
    assert (waiting["paused"], waiting["share"]) == (True, share)
    expect(doing).to_have_text(re.compile(r"Training, \d+%, .* left"))
    me.get_by_role("button", name="Stop").click()
    expect(me.locator(".ps-ended")).to_contain_text("Stopped. What is learned so far is kept")
    stopped, _ = state_of(store)
    assert stopped.steps > 0

    me.get_by_role("button", name="Go on learning").click()
    expect(doing).to_have_text(re.compile(r"Training, \d+%, .* left"))
    me.get_by_role("button", name="Stop").click()
    expect(me.locator(".ps-ended")).to_be_visible()
    state, _ = state_of(store)
    assert state.steps > stopped.steps
    assert state.curve[: len(stopped.curve)] == stopped.curve


def test_a_killed_server_leaves_no_process_and_the_next_one_goes_on_from_the_state(
    store: PersonalStore, site: Callable[[], Site]
) -> None:
    server = site()
    store.add("secret.txt", [SECRET])
    write(store.learned / "adapter_model.safetensors", b"learned with the secret")
    assert server.post("/api/stores/forget-document", store="me", document="secret.txt")["adapter"]
    assert server.trains()["again"]
    (process,) = [
        child
        for child in psutil.Process(server.child.process.pid).children()
        if "learning.child" in str(child.cmdline())
    ]
    server.child.process.kill()
    server.child.process.wait()
    psutil.wait_procs([process], 30)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    before, identity = state_of(store)
    assert before.steps > 0
    write(store.learned / STATE, replace(before, spent=WEIGHT).to_bytes(identity))
    server = site()
    assert server.trains()["again"], "without a click"
    server.post("/api/stores/stop-training", store="me")
    server.training(lambda row: row["state"] == "ended")
    after, _ = state_of(store)
    assert after.spent > WEIGHT, "it goes on from the state"
    assert after.steps > before.steps
