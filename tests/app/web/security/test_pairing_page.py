"""The code that pairs an extension, on the page in real Chromium: what it shows, how long, and to whom."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from app.web.security.pairing import SECONDS
from tests.app.static.editor.test_page import ENOUGH
from tests.app.web.security.test_guard_page import Site, another_site, context, is_open, profile, site
from tests.fake_drafts import FakeDrafts, Server, create_app

__all__ = ["context", "profile", "site"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
expect.set_options(timeout=ENOUGH)
CODE = re.compile(r"[A-Z2-9]{3}-[A-Z2-9]{3}")


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Iterator[Page]:
    made = context.new_page()
    made.goto(site.printed)
    is_open(made, site)
    made.get_by_role("button", name="Panel", exact=True).click()
    made.get_by_role("button", name="This page").click()
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


def test_the_page_shows_a_code_that_pairs_once_no_other_site_gets_it_and_it_is_forgotten_when_closed_or_expired(
    page: Page, site: Site
) -> None:
    page.get_by_role("button", name="Pair browser").click()
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
    page.get_by_role("button", name="Pair browser").click()
    assert shown(page) not in (code, newer)

    dialog.get_by_role("button", name="Close").click()
    page.clock.install()
    page.get_by_role("button", name="Pair browser").click()
    shown(page)
    page.clock.fast_forward((SECONDS + 1) * 1000)
    expect(dialog).to_contain_text("The code is no longer valid.")
    expect(dialog.locator(".pr-code")).to_be_hidden()
    dialog.get_by_role("button", name="New code").click()
    shown(page)


def test_without_a_token_the_dialog_says_why_there_is_no_code(context: BrowserContext) -> None:
    server = Server(create_app(FakeDrafts()))
    page = context.new_page()
    page.goto(server.url)
    page.get_by_role("button", name="Panel", exact=True).click()
    page.get_by_role("button", name="This page").click()
    page.get_by_role("button", name="Pair browser").click()
    expect(page.get_by_role("dialog")).to_contain_text(
        "This server has no token, so no extension can be paired with it."
    )
    page.close()
    server.stop()
