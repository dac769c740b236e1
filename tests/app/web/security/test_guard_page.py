"""The token, the page's policy, and the code that pairs an extension, in real Chromium: who gets in, what the page
requests, and what the policy blocks."""

from __future__ import annotations

import http.server
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from app.web.page import NEEDED
from app.web.security.access import Access
from app.web.security.pairing import SECONDS
from tests.app.static.editor.editor_page import ENOUGH
from tests.fake_drafts import FakeDrafts, Server, create_app

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
expect.set_options(timeout=ENOUGH)

VIOLATIONS = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


class Site:
    """The page behind a token."""

    def __init__(self) -> None:
        self.access = Access(secrets.token_urlsafe(32))
        self.server = Server(create_app(FakeDrafts(), access=self.access, gradio=True))
        self.url = self.server.url + "/"

    @property
    def printed(self) -> str:
        return f"{self.url}?token={self.access.token}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.stop()


@pytest.fixture(scope="module")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport={"width": 1000, "height": 700}) as context:
        yield context


@pytest.fixture
def context(profile: BrowserContext) -> Iterator[BrowserContext]:
    """A browser without the cookie. It has the page's files, which take longer to load than all the rest."""
    yield profile
    for page in profile.pages:
        page.close()
    profile.clear_cookies()


def is_open(page: Page, site: Site) -> None:
    expect(page.get_by_role("textbox", name="Your text")).to_be_visible()
    assert page.url == site.url


def is_closed(page: Page) -> None:
    expect(page.get_by_role("heading")).to_contain_text("token")
    assert page.get_by_role("textbox", name="Your text").count() == 0


def test_the_printed_address_opens_the_page_and_is_not_kept(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.goto(site.printed)
    is_open(page, site)
    assert page.evaluate("document.cookie + document.referrer") == ""  # no script and no other page can read it
    assert site.access.token not in page.content()
    (cookie,) = context.cookies()
    assert cookie.get("sameSite") == "Strict"
    assert cookie.get("httpOnly")
    page.go_back()
    assert "token" not in page.url
    page.goto(site.url)
    page.reload()
    is_open(page, site)


def test_under_a_path_of_a_proxy_the_page_says_that_it_needs_the_root(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.goto(site.printed)
    is_open(page, site)

    def proxy(route: Route) -> None:
        """Serves Polydraft under a path, and nothing beside it."""
        _, prefix, path = route.request.url.partition("/polydraft/")
        if prefix:
            route.fulfill(response=route.fetch(url=site.url + path))
        else:
            route.fulfill(status=404, body="nothing here")

    page.route("**/*", proxy)
    page.goto(f"{site.url}polydraft/", wait_until="commit")
    expect(page.locator("body")).to_have_text(
        "Polydraft works only at the root of an address, and this is /polydraft/. "
        "Let the proxy give it a host name or a port of its own."
    )


def test_without_the_token_the_page_has_instructions_and_a_field_for_it(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 360, "height": 640})
    page.add_init_script(VIOLATIONS)
    page.goto(site.url)
    is_closed(page)
    paper = page.locator("body").evaluate("(body) => getComputedStyle(body).backgroundColor")
    assert paper == "rgb(23, 24, 26)", "the look of the product"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("violations") == []
    expect(page.locator("body")).to_contain_text("polydraft token")
    page.get_by_role("textbox", name="Token").fill("a guess")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading")).to_contain_text("is not the one of this server")
    page.get_by_role("textbox", name="Token").fill(site.access.token)
    page.get_by_role("textbox", name="Token").press("Enter")
    is_open(page, site)


def test_the_installed_app_opens_after_browser_and_server_were_started_again(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    kind = browser.browser_type
    options: dict[str, Any] = {"executable_path": _executable(), "args": ["--no-sandbox", "--disable-gpu"]}
    context = kind.launch_persistent_context(tmp_path, **options)
    context.new_page().goto(site.printed)
    is_open(context.pages[-1], site)
    context.close()
    site.server.stop()
    site.server.start()
    context = kind.launch_persistent_context(tmp_path, **options)
    page = context.new_page()
    page.goto(site.url)  # the start address in the manifest
    is_open(page, site)
    found = context.new_cdp_session(page).send("Page.getAppManifest")  # it is fetched with the cookie
    assert (found["url"], found["errors"]) == (site.url + "manifest.json", [])
    assert page.locator("link[rel=manifest]").get_attribute("crossorigin") == "use-credentials"
    assert context.request.get(found["url"]).json()["start_url"] == "/"
    context.close()


def _executable() -> str:
    from app.web.browser import SHELLS, find_browser

    return next(filter(None, map(shutil.which, SHELLS)), None) or str(find_browser())


@contextmanager
def another_site(html: str) -> Iterator[str]:
    """A page of another site on this machine, at the address that is given back."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, format: str, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_a_link_on_another_site_opens_the_page(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.goto(site.printed)
    with another_site(f'<a href="{site.url}#here">Polydraft</a>') as address:
        page.goto(address)
        page.get_by_role("link").click()
        expect(page.get_by_role("textbox", name="Your text")).to_be_visible()
        assert page.url == site.url + "#here"


def test_other_pages_can_neither_frame_it_nor_ask_it(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.goto(site.printed)
    is_open(page, site)
    html = f"""
        <iframe src="{site.url}"></iframe>
        <script>
            const asked = fetch("{site.url}api/status", {{ credentials: "include" }});
            const script = import("{site.url}page/editor/main.js");
            Promise.all([asked, script].map((tried) => tried.then(() => "done", () => "refused")))
                .then((found) => {{ window.found = found; }});
        </script>"""
    with another_site(html) as address:
        for origin in (address, address.replace("localhost", "127.0.0.1")):  # the second is sent the cookie
            page.goto(origin)
            page.wait_for_function("window.found")
            assert page.evaluate("found") == ["refused", "refused"]
            frame = page.frames[1]
            assert frame.locator("#pd").count() == 0


def test_the_page_requests_only_the_open_paths_of_gradio(context: BrowserContext, site: Site) -> None:
    page, asked, refused = context.new_page(), set(), []
    page.add_init_script(VIOLATIONS)
    page.on("request", lambda request: asked.add(request.url.removeprefix(site.url[:-1]).partition("?")[0]))
    page.on("response", lambda response: refused.append(response.url) if response.status in (401, 403) else None)
    page.goto(site.printed)
    is_open(page, site)
    page.wait_for_function("window.polydraft")
    page.keyboard.type("Yesterday she went")
    expect(page.locator(".pd-option-row .pd-draft")).to_have_count(3)
    page.get_by_role("button", name="Panel", exact=True).click()
    page.get_by_role("button", name="For experts").click()
    page.get_by_role("tab", name="My writing").click()
    page.wait_for_timeout(500)
    ours = re.compile(r"/page/|/api/|/manifest\.json")
    gradios = {path for path in asked if not ours.match(path)}
    assert all(NEEDED.fullmatch(path) for path in gradios), gradios
    # Each part of the list is needed, except the favicon, which only a browser with a window requests.
    parts = [part for part in NEEDED.pattern.split("|") if "favicon" not in part]
    assert all(any(re.fullmatch(part, path) for path in gradios) for part in parts)
    assert refused == []
    assert page.evaluate("violations") == []


def test_a_script_that_got_into_the_page_does_not_run(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.add_init_script(VIOLATIONS)
    page.goto(site.printed)
    is_open(page, site)
    page.evaluate("""() => {
        document.querySelector("#pd").insertAdjacentHTML("beforeend",
            `<img src="data:," onerror="window.ran = 1"><img src="http://127.0.0.1:1/x.png">`);
        const script = document.createElement("script");
        script.textContent = "window.ran = 1";
        document.body.append(script);
    }""")
    page.wait_for_function("violations.length >= 3", polling=20)
    assert page.evaluate("window.ran") is None
    assert {violation.split()[0] for violation in page.evaluate("violations")} == {
        "script-src-attr",
        "script-src-elem",
        "img-src",
    }


# ---------------------------------------------------------------- the code that pairs an extension

CODE = re.compile(r"[A-Z2-9]{3}-[A-Z2-9]{3}")


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Iterator[Page]:
    made = context.new_page()
    made.goto(site.printed)
    is_open(made, site)
    yield made
    made.close()


def shown(page: Page) -> str:
    """The code that the dialog shows, once it does."""
    code = page.get_by_role("dialog").get_by_role("status", name="Code")
    expect(code).to_have_text(CODE)
    return code.inner_text()


def pair(site: Site, code: str) -> int:
    """What an extension does with a code; returns the status of the response."""
    origin = {"Origin": "chrome-extension://" + "a" * 32}
    return httpx.post(f"{site.url}pair", json={"code": code}, headers=origin, trust_env=False).status_code


def fits(page: Page, width: int) -> bool:
    """Whether the dialog fits a window of this width."""
    page.set_viewport_size({"width": width, "height": 640})
    dialog = page.get_by_role("dialog", name="Pair your browser")
    box = dialog.bounding_box()
    assert box
    return (
        dialog.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight")
        and 16 <= box["x"] <= width - 16 - box["width"]
    )


def a_site_that_wants_a_code(site: Site) -> str:
    """A page that tries to read a code, and to have a new one made."""
    return f"""
        <form action="{site.url}pair/code" method="post" enctype="text/plain" target="hidden">
            <input name='{{"a":"' value='"}}'>
        </form>
        <iframe name="hidden"></iframe>
        <script>
            const url = "{site.url}pair/code", json = {{ "Content-Type": "application/json" }};
            const tries = [
                {{ method: "POST", credentials: "include", body: "{{}}" }},
                {{ method: "POST", credentials: "include", body: "{{}}", mode: "no-cors" }},
                {{ method: "POST", credentials: "include", body: "{{}}", headers: json }},
                {{ credentials: "include" }},
            ];
            document.forms[0].submit();
            Promise.all(tries.map((init) => fetch(url, init).then((found) => found.text(), () => "refused")))
                .then((found) => {{ window.found = found; }});
        </script>"""


def open_pairing(page: Page) -> None:
    if page.locator("[data-do=panel]").get_attribute("aria-expanded") == "false":
        page.locator("[data-do=panel]").click()
    section = page.locator("#pd-panel").get_by_role("button", name="This page")
    if not page.get_by_role("button", name="Pair browser").is_visible():
        section.click()
    page.get_by_role("button", name="Pair browser").click()


def test_the_page_shows_a_code_that_pairs_once_no_other_site_gets_it_and_it_is_forgotten_when_closed_or_expired(
    page: Page, site: Site
) -> None:
    open_pairing(page)
    dialog = page.get_by_role("dialog", name="Pair your browser")
    expect(dialog).to_contain_text(re.compile(r"Type\s+this code into its options"))
    expect(dialog).to_contain_text(re.compile(r"Valid once, for [12]:\d\d more"))
    code = shown(page)
    assert fits(page, 360) and fits(page, 1280)
    with another_site(a_site_that_wants_a_code(site)) as address:
        for origin in (address, address.replace("localhost", "127.0.0.1")):  # the second is sent the cookie
            other = page.context.new_page()
            other.goto(origin)
            other.wait_for_function("window.found")
            assert not any(CODE.search(text) for text in other.evaluate("found"))
            other.close()
    assert pair(site, code) == 200, "the code that the page shows is still valid"
    assert pair(site, code) == 403
    dialog.get_by_role("button", name="New code").click()
    expect(dialog).not_to_contain_text(code)
    newer = shown(page)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".pr-code")).to_be_empty()
    assert newer not in page.content()
    assert pair(site, newer) == 200
    open_pairing(page)
    assert shown(page) not in (code, newer)

    dialog.get_by_role("button", name="Close").click()
    page.clock.install()
    open_pairing(page)
    shown(page)
    page.clock.fast_forward((SECONDS + 1) * 1000)
    expect(dialog).to_contain_text("The code is no longer valid.")
    expect(dialog.locator(".pr-code")).to_be_hidden()
    dialog.get_by_role("button", name="New code").click()
    shown(page)


def test_without_a_token_the_dialog_says_why_there_is_no_code(context: BrowserContext) -> None:
    server = Server(create_app(FakeDrafts(), gradio=True))
    page = context.new_page()
    page.goto(server.url)
    open_pairing(page)
    expect(page.get_by_role("dialog")).to_contain_text(
        "This server has no token, so no extension can be paired with it."
    )
    page.close()
    server.stop()
