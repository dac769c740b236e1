"""Chromium with the extension, and pages to type into, for the tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Worker, expect, sync_playwright

from app.web.browser import FLAGS, find_browser

HERE = Path(__file__).parent
EDITORS = ("react", "prosemirror", "lexical", "codemirror", "quill")


def bundle(folder: Path) -> None:
    """Writes the pages with the editors from npm into a folder."""
    scripts = [str(HERE / "pages" / f"{name}.js") for name in EDITORS]
    program = HERE / "node_modules/.bin/esbuild"
    define = '--define:process.env.NODE_ENV="production"'
    done = subprocess.run(
        [str(program), *scripts, "--bundle", "--format=iife", define, f"--outdir={folder}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shutil.copy(HERE / "pages/plain.html", folder)
    page = (HERE / "pages/editor.html").read_text(encoding="utf-8")
    for name in EDITORS:
        (folder / f"{name}.html").write_text(f'{page}<script src="{name}.js"></script>\n', encoding="utf-8")


class Browser:
    """Chromium with unpacked extensions; the first is ours."""

    def __init__(self, context: BrowserContext, names: list[str]) -> None:
        self.context = context
        assert context.browser
        self.devtools = context.browser.new_browser_cdp_session()
        found = {one["name"]: one["id"] for one in self.devtools.send("Extensions.getExtensions")["extensions"]}
        self.ids = [found[name] for name in names]
        self.id = self.ids[0] if names else ""
        if names:
            self._wait_for_options()

    def _wait_for_options(self) -> None:
        """Waits for the options page, which opens at installation; it may take the tab of another navigation to it."""
        deadline = time.monotonic() + 60
        while not any(page.url == self.options for page in self.context.pages):
            assert time.monotonic() < deadline, "the options page opens at installation"
            self.context.pages[0].wait_for_timeout(50)

    @property
    def options(self) -> str:
        return f"chrome-extension://{self.id}/options.html"

    def worker(self, at: int = 0) -> Worker:
        """The worker of an extension."""
        address = f"chrome-extension://{self.ids[at]}/"
        while True:
            for worker in self.context.service_workers:
                if worker.url.startswith(address):
                    return worker
            self.context.wait_for_event("serviceworker", timeout=30_000)

    def click_icon(self, page: Page) -> None:
        """What a click on the extension's icon does, in the tab of a page."""
        page.bring_to_front()
        tabs = self.devtools.send("Target.getTargets", {"filter": [{"type": "tab"}]})["targetInfos"]
        (target,) = [tab["targetId"] for tab in tabs if tab["url"] == page.url]
        self.devtools.send("Extensions.triggerAction", {"id": self.id, "targetId": target})

    def pair(self, code: str, port: int) -> Page:
        """Types a code into the options page, and waits for the outcome."""
        page = self.context.new_page()
        page.goto(self.options)
        page.get_by_label("Port").fill(str(port))
        page.get_by_label("Code").fill(code)
        page.get_by_role("button", name="Pair").click()
        expect(page.get_by_role("status")).not_to_be_empty()
        return page


@contextmanager
def chromium(profile: Path, *extensions: Path) -> Iterator[Browser]:
    """Headless Chromium with a profile of its own and these unpacked extensions."""
    path = find_browser()
    assert path, "Install Chromium (Debian: apt-get install chromium)."
    loaded = ",".join(map(str, extensions))
    flags = [f"--load-extension={loaded}", f"--disable-extensions-except={loaded}"] if extensions else []
    # The developer tools may then click on an extension's icon.
    flags += ["--enable-unsafe-extension-debugging"]
    names = [json.loads((folder / "manifest.json").read_text())["name"] for folder in extensions]
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=str(path), args=[*FLAGS, *flags], viewport={"width": 1000, "height": 760}
        )
        context.set_default_timeout(30_000)
        yield Browser(context, names)
        context.close()
