"""Sleep: the server or the browser stops in the middle of a stream and goes on later, or their connection is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.app.static.documents.test_documents_page import keep_as, saved, write_new
from tests.app.static.editor.test_page import Editor
from tests.fake_drafts import HOME, MARKET, RIVER, FakeDrafts
from tests.paths import ROOT

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot stop a process"),
]

STORY = "The keeper walked"
IDLE = 1  # seconds after which the server closes idle connections; all its timers are due when it wakes

SERVES = """
    import functools, sys
    from pathlib import Path
    from tests import fake_drafts
    from tests.fake_drafts import FakeDrafts, Server, create_app

    fake_drafts.configured = functools.partial(fake_drafts.configured, timeout_keep_alive=int(sys.argv[2]))
    server = Server(create_app(FakeDrafts(step_s=0.2), documents=Path(sys.argv[1])))
    print(server.url, flush=True)
    server.thread.join()
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own, which writes its address. A draft takes more than a second."""
    command = [sys.executable, "-c", textwrap.dedent(SERVES), str(tmp_path / "documents"), str(IDLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def texts(folder: Path) -> set[str]:
    return {path.read_text("utf-8") for path in (folder / "documents").glob("*.txt")}


def test_after_a_sleep_in_the_middle_of_a_stream_the_page_goes_on_and_loses_nothing(
    sleeper: subprocess.Popen[str], context: BrowserContext, tmp_path: Path
) -> None:
    assert sleeper.stdout
    editor = Editor(context.new_page(), FakeDrafts()).open(sleeper.stdout.readline().strip())
    write_new(editor, STORY)
    keep_as(editor, "as files on this computer")
    editor.page.get_by_role("button", name="Close").first.click()
    editor.press("Control+End")
    editor.write("e")
    editor.wait(lambda: editor.drafts(), "the first words")
    os.kill(sleeper.pid, signal.SIGSTOP)
    editor.page.wait_for_timeout(500)
    before = editor.drafts()
    os.kill(sleeper.pid, signal.SIGCONT)
    editor.wait_for_drafts(MARKET, RIVER, HOME)  # the same stream went on
    assert before != editor.drafts()
    editor.write("d")
    editor.wait(lambda: editor.drafts(), "the first words")
    os.kill(sleeper.pid, signal.SIGSTOP)
    editor.write(" on and on")
    assert editor.text == STORY + "ed on and on"
    editor.page.wait_for_timeout(2000 * IDLE)
    os.kill(sleeper.pid, signal.SIGCONT)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    saved(editor)
    editor.wait(lambda: texts(tmp_path) == {STORY + "ed on and on"}, "the whole text in its file")
    expect(editor.page.get_by_role("alert")).to_be_hidden()
    assert editor.errors == []
