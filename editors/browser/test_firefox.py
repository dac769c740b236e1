"""The extension in the system's Firefox, driven by WebDriver BiDi: pairing, a draft, and that it is off elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from build import FIREFOX_ID, build
from extension_session import bundle

from app.cli.pair import code_of
from tests.editor import Drafting, drafting_server
from tests.folder_server import served

ONE = " one" * 12  # the scripted draft
READ = 0.8  # s after which drafts that were asked for are shown, and can be taken
TAB, CONTROL, RIGHT = "\ue004", "\ue009", "\ue014"
QUIET_PREFERENCES = """
user_pref("app.normandy.enabled", false);
user_pref("app.update.disabledForTesting", true);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("services.settings.server", "data:,");
"""


class Firefox:
    """Commands of WebDriver BiDi, one at a time."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.number = socket, 0

    async def send(self, method: str, **params: Any) -> Any:
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        while True:
            answer = json.loads((await asyncio.wait_for(self.socket.receive(), 60)).data)
            if answer.get("id") == self.number:
                assert answer["type"] == "success", answer
                return answer["result"]

    async def run(self, context: str, expression: str) -> Any:
        target = {"context": context}
        found = await self.send("script.evaluate", expression=expression, target=target, awaitPromise=True)
        assert found["type"] == "success", found
        return found["result"].get("value")

    async def open(self, address: str) -> str:
        context = (await self.send("browsingContext.create", type="tab"))["context"]
        await self.send("browsingContext.navigate", context=context, url=address, wait="complete")
        return context

    async def press(self, context: str, keys: str) -> None:
        """Presses keys one after the other; a control key stays down until the end."""
        held = [key for key in keys if key == CONTROL]
        actions: list[dict[str, Any]] = []
        for key in keys:
            actions.append({"type": "keyDown", "value": key})
            actions += [] if key in held else [{"type": "keyUp", "value": key}, {"type": "pause", "duration": 15}]
        actions += [{"type": "keyUp", "value": key} for key in held]
        await self.send(
            "input.performActions", context=context, actions=[{"type": "key", "id": "k", "actions": actions}]
        )

    async def click_icon(self) -> None:
        """What a click on the extension's icon does, in the selected tab."""
        found = await self.send("browsingContext.getTree", **{"moz:scope": "chrome"})
        (window,) = [one["context"] for one in found["contexts"] if one["url"].endswith("browser.xhtml")]
        await self.run(
            window,
            f"""(() => {{
              const parent = ChromeUtils.importESModule("resource://gre/modules/ExtensionParent.sys.mjs");
              const {{ extension }} = WebExtensionPolicy.getByID("{FIREFOX_ID}");
              parent.ExtensionParent.apiManager.global.browserActionFor(extension).triggerAction(window);
            }})()""",
        )


@asynccontextmanager
async def firefox(folder: Path) -> AsyncIterator[Firefox]:
    program = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
    assert program, "Install Firefox (Debian: apt-get install firefox-esr)."
    folder.mkdir()
    (folder / "user.js").write_text(QUIET_PREFERENCES)
    options = ["--headless", "--no-remote", "--remote-debugging-port=0", "--remote-allow-system-access"]
    command = [program, *options, "--profile", str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr
        found = None
        while not found:
            line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
            assert line, "Firefox ended before it could be driven."
            found = re.search(r"WebDriver BiDi listening on (ws://\S+)", line)
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{found[1]}/session", max_msg_size=0) as socket:
            driven = Firefox(socket)
            await driven.send("session.new", capabilities={})
            yield driven
    finally:
        process.terminate()
        await process.communicate()


async def asked(drafting: Drafting, before: str) -> None:
    for _ in range(300):
        if any(body.get("prompt") == before for body in drafting.bodies.seen):
            await asyncio.sleep(0.8)
            return
        await asyncio.sleep(0.1)
    pytest.fail(str(drafting.bodies.seen))


async def writes(folder: Path, site: str, elsewhere: str, drafting: Drafting) -> None:
    (archive,) = [path for path in build(folder / "built") if "firefox" in path.name]
    async with firefox(folder / "profile") as driven:
        given = {"type": "archivePath", "path": str(archive)}
        assert (await driven.send("webExtension.install", extensionData=given))["extension"] == FIREFOX_ID
        options = None
        for _ in range(100):
            contexts = (await driven.send("browsingContext.getTree"))["contexts"]
            options = next((one["context"] for one in contexts if one["url"].endswith("/options.html")), None)
            if options:
                break
            await asyncio.sleep(0.1)
        assert options, "the options open after the installation"
        code = code_of(drafting.port)
        await driven.run(
            options,
            f"""(() => {{
              document.querySelector("[name=port]").value = {drafting.port};
              document.querySelector("[name=code]").value = "{code}";
              document.querySelector("form").requestSubmit();
            }})()""",
        )
        for _ in range(100):
            said = await driven.run(options, 'document.querySelector("[role=status]").textContent')
            if said:
                break
            await asyncio.sleep(0.1)
        assert said == "Paired."

        off = await driven.open(f"{elsewhere}/plain.html")
        await driven.run(off, 'document.querySelector("#area").focus()')
        await driven.press(off, "Once upon")
        await asyncio.sleep(1)
        assert not any("prompt" in body for body in drafting.bodies.seen)

        on = await driven.open(f"{site}/plain.html")
        await driven.click_icon()
        await asyncio.sleep(1)
        for field in ("area", "line", "edited"):
            drafting.bodies.seen.clear()
            await driven.run(on, f'document.querySelector("#{field}").focus()')
            await driven.press(on, "Once upon")
            await asked(drafting, "Once upon")
            await asyncio.sleep(READ)
            await driven.press(on, CONTROL + RIGHT)
            await driven.press(on, TAB)
            written = await driven.run(on, "text()")
            assert written.replace("\u00a0", " ") == "Once upon" + ONE, field
            seen = await driven.run(on, "JSON.stringify(seen) + document.querySelector('polydraft-drafts')?.shadowRoot")
            assert "two two" not in seen
        await asyncio.sleep(1)
        drafting.bodies.seen.clear()
        await driven.run(on, 'document.querySelector("#card").focus()')
        await driven.press(on, "Once upon")
        await asyncio.sleep(1)
        assert drafting.bodies.seen == []


def test_it_drafts_in_firefox_where_it_is_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "pages").mkdir()
    bundle(tmp_path / "pages")
    with drafting_server() as drafting, served(tmp_path / "pages") as site, served(tmp_path / "pages") as elsewhere:
        asyncio.run(writes(tmp_path, site, elsewhere, drafting))
