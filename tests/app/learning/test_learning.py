"""Learning from a click to a kill: the real server, page and training process, with a tiny model."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import BrowserContext, expect

from app.learning.learner import QUIET
from core.models import hf
from core.models.adapter import read_tensors
from core.ngram.personal import PersonalStore
from tests.running_app import RunningApp, free_port
from training.adapter import State
from training.personal import STATE

pytestmark = pytest.mark.timeout(600)

PATIENCE = 200.0
OWN = "the cat sat on a mat. "


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Iterator[PersonalStore]:
    """The store `me` of the server."""
    home = tmp_path_factory.mktemp("home")
    # The machine is busy with other tests: at the lowest priority the training would hardly run.
    (home / "sitecustomize.py").write_text(
        "import os\n\nnice = os.nice\nos.nice = lambda increment: nice(increment > 0)\n"
    )
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

    def __init__(self, app: RunningApp) -> None:
        self.app = app

    def training(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Waits until the training of `me` is as wanted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.app.get("/api/stores/trainings")["trainings"] or [{}]
            if wanted(found[0]):
                return found[0]
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    @property
    def trainer(self) -> psutil.Process:
        """The process that trains."""
        children = psutil.Process(self.app.process.pid).children()
        (found,) = [child for child in children if "learning.child" in str(child.cmdline())]
        return found


@pytest.fixture
def site(store: PersonalStore, tiny_file: Path) -> Iterator[Site]:
    flags = ["--no-browser", "--port", str(free_port()), "--model", str(tiny_file)]
    app = RunningApp.start("-m", "app.cli.main", *flags)
    yield Site(app)
    app.close()


def state_of(store: PersonalStore) -> State:
    """The state of a training."""
    tensors, about = read_tensors(store.learned / STATE)
    found = State.of(tensors, about, about["identity"])
    assert found is not None
    return found


@pytest.mark.browser
def test_a_click_trains_typing_pauses_it_and_a_killed_server_leaves_no_process_but_its_state(
    context: BrowserContext, store: PersonalStore, site: Site
) -> None:
    page = context.new_page()
    page.emulate_media(reduced_motion="reduce")  # a bar that moves takes a sixth of a core
    page.set_default_timeout(PATIENCE * 1000)
    expect.set_options(timeout=PATIENCE * 1000)
    page.goto(site.app.url)
    page.wait_for_function("window.polydraft !== undefined")
    page.get_by_role("tab", name="My writing").click()
    me = page.locator(".ps-store[data-store=me]")
    doing = me.locator(".ps-doing")
    me.get_by_role("button", name="Learn my style").click()
    expect(doing).to_have_text(re.compile(r"Training, \d+%, .* left"))
    expect(me.locator(".ps-curve")).to_contain_text("more probable per word or part of a word so far")
    assert os.name != "posix" or site.trainer.nice() == os.nice(0) + 1, "it goes last"

    page.get_by_role("tab", name="Write").click()
    page.get_by_role("textbox", name="Your text").focus()
    page.keyboard.type("the cat")
    page.get_by_role("tab", name="My writing").click()
    expect(doing).to_have_text("Paused while you type")
    share = site.training(lambda row: row["paused"])["share"]
    time.sleep(QUIET / 3)
    waiting = site.training(lambda row: row)
    assert (waiting["paused"], waiting["share"]) == (True, share)
    expect(doing).to_have_text(re.compile(r"Training, \d+%, .* left"))
    before = site.training(lambda row: row["share"] > share)["curve"]
    trainer = site.trainer
    site.app.process.kill()
    site.app.process.wait()
    psutil.wait_procs([trainer], 30)
    assert not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE
    state = state_of(store)
    assert state.steps > 0, "it is kept, and the next training goes on from it"
    assert [list(point) for point in state.curve[: len(before)]] == before
