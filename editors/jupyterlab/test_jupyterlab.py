"""The extension in real JupyterLab, in Chromium: `make test-jupyterlab` installs both and runs this file."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.machine import running
from app.machine.token import token
from tests.editor import Drafting
from tests.running_app import free_port

PROGRAMS = os.environ.get("POLYDRAFT_JUPYTERLAB", "")  # the folder of jupyter-lab
CELL = ".jp-MarkdownCell .cm-content"
GHOST = ".jp-MarkdownCell .jp-GhostText >> nth=-1"  # JupyterLab draws the new text before it removes the old one
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "prose", "metadata": {}, "source": ["A letter"]},
        {
            "cell_type": "code",
            "id": "code",
            "metadata": {},
            "source": ["x = 1"],
            "outputs": [],
            "execution_count": None,
        },
    ],
    "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


class Lab:
    """A JupyterLab whose extension is configured for a drafting server."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.token, self.port = folder, secrets.token_urlsafe(16), free_port()
        (folder / "jupyter_server_config.py").write_text(f"c.Polydraft.port = {port}\n")
        (folder / "letter.ipynb").write_text(json.dumps(NOTEBOOK))
        folders = {name: str(folder / name) for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
        command = [f"{PROGRAMS}/jupyter-lab", "--no-browser", "--allow-root", f"--port={self.port}"]
        command += [f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={folder}"]
        with (folder / "log").open("w") as log:
            env = os.environ | folders | {"JUPYTER_CONFIG_DIR": str(folder), "JUPYTERLAB_SETTINGS_DIR": str(folder)}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api", timeout=5).close()
                return
            except OSError:
                time.sleep(0.2)
        pytest.fail((self.folder / "log").read_text())

    def open(self, browser: Browser) -> Page:
        """A new window with the notebook; its Markdown cell is being edited."""
        page = browser.new_context().new_page()
        page.goto(f"http://127.0.0.1:{self.port}/lab/tree/letter.ipynb?reset&token={self.token}")
        page.locator(".jp-NotebookPanel").wait_for(timeout=60_000)
        page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=60_000)
        page.locator(".jp-MarkdownCell").click()
        page.keyboard.press("Enter")
        expect(page.locator(CELL)).to_be_focused()
        return page


@pytest.fixture(scope="module")
def lab(drafting: Drafting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    assert PROGRAMS, "Run this with `make test-jupyterlab`."
    made = Lab(tmp_path_factory.mktemp("lab"), drafting.port)
    yield made
    made.process.terminate()
    made.process.wait(20)


@pytest.fixture
def page(lab: Lab, browser: Browser, drafting: Drafting) -> Iterator[Page]:
    drafting.autocomplete.model.step_s = 0.0
    drafting.bodies.seen.clear()
    made = lab.open(browser)
    yield made
    made.context.close()


def write(page: Page, text: str) -> None:
    page.keyboard.press("Control+a")
    page.keyboard.type(text, delay=20)


def test_drafts_are_shown_cycled_and_taken(page: Page, drafting: Drafting) -> None:
    write(page, "Once upon")
    expect(page.locator(GHOST)).to_have_text(" one" * 10)
    body = drafting.bodies.seen[-1]
    assert (body["prompt"], body["suffix"], body["n"], body["stream"]) == ("Once upon", "", 3, True)
    assert body["no_slurs"] is True
    for key, word in (
        ("Alt+]", " two"),
        ("Alt+]", " three"),
        ("Alt+]", " one"),
        ("Alt+[", " three"),
        ("Alt+[", " two"),
    ):
        page.keyboard.press(key)
        expect(page.locator(GHOST)).to_have_text(word * 10)
    page.keyboard.press("Tab")
    expect(page.locator(CELL)).to_have_text("Once upon" + " two" * 10)


def test_a_word_is_taken_and_the_rest_stays(page: Page, drafting: Drafting) -> None:
    write(page, "Once upon")
    expect(page.locator(GHOST)).to_have_text(" one" * 10)
    page.keyboard.press("Alt+]")
    drafting.autocomplete.model.step_s = 3  # the next request is not answered yet
    page.keyboard.press("Alt+n")
    expect(page.locator(GHOST)).to_have_text(" two" * 9)
    expect(page.locator(f"{CELL} .cm-line")).to_have_text("Once upon two" + " two" * 9)
    page.keyboard.press("Tab")
    expect(page.locator(CELL)).to_have_text("Once upon" + " two" * 10)
    expect(page.locator(GHOST)).to_have_count(0)


def test_drafts_grow_while_they_are_made(page: Page, drafting: Drafting) -> None:
    drafting.autocomplete.model.step_s = 0.2
    write(page, "Slowly")
    lengths = set[int]()
    while (
        length := len(page.locator(GHOST).all_text_contents()[0].split()) if page.locator(GHOST).count() else 0
    ) < 10:
        lengths.add(length)
    assert len(lengths - {0}) > 2


def test_a_newer_key_stops_the_older_request(page: Page, drafting: Drafting) -> None:
    drafting.autocomplete.model.step_s = 0.1
    write(page, "Never")
    expect(page.locator(GHOST)).to_contain_text(" one")
    older = drafting.autocomplete.latest
    page.keyboard.type("t")
    page.wait_for_timeout(400)
    assert older and older.closed and older.step < 10


def test_code_has_no_drafts(page: Page, drafting: Drafting) -> None:
    page.locator(".jp-CodeCell .cm-content").click()
    page.keyboard.press("End")
    page.keyboard.type("23")
    page.wait_for_timeout(500)
    assert page.locator(".jp-GhostText").count() == 0
    assert drafting.bodies.seen == []


def test_the_browser_holds_no_token(page: Page) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.url} {request.headers} {request.post_data}"))
    write(page, "Once upon")
    expect(page.locator(GHOST)).to_have_text(" one" * 10)
    assert any("polydraft/completions" in one for one in sent)
    assert not any(token() in one for one in sent)


def test_a_missing_server_is_told_in_words(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    assert running.at(port) is None
    lab = Lab(tmp_path, port)
    try:
        page = lab.open(browser)
        write(page, "Once upon")
        message = page.get_by_text(f"No Polydraft of yours runs at port {port}. Start it with `polydraft serve`.")
        expect(message).to_have_count(1)
        page.context.close()
    finally:
        lab.process.terminate()
        lab.process.wait(20)
