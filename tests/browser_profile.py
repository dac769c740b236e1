"""A browser's profile for the tests of one file: each test finds it empty, and pages load fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Frame, Page
from playwright.sync_api import Error as PlaywrightError

BLANK = "about:blank"


class Profile:
    """A browser's profile that can be emptied.

    Its cache keeps the page's some 80 files. Its first tab is used again by the next test, if a test has changed
    nothing there that outlasts a document: a tab that has shown the page before shows it in half the processor time.
    """

    OUTLASTS = ("add_init_script", "emulate_media", "expose_function", "expose_binding", "route", "set_viewport_size")

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self._new_page, self._new_session = self.context.new_page, self.context.new_cdp_session
        self._blank = self._new_page()
        self._session = self._new_session(self._blank)
        self._origins: set[str] = set()
        self.context.on("page", lambda page: page.on("framenavigated", self._note))
        self._tab: Page | None = None
        self._taken = self._changed = False
        self._listeners: list[tuple[str, Callable[..., object]]] = []
        self.context.new_page = self._page
        self.context.new_cdp_session = self._changing(self._new_session)

    def _note(self, frame: Frame) -> None:
        if frame.url != BLANK:
            self._origins.add("/".join(frame.url.split("/")[:3]))

    def _page(self) -> Page:
        """The first tab, if the test has none yet, otherwise a new one."""
        if self._taken:
            return self._new_page()
        self._taken = True
        if self._tab is None:
            self._tab = self._new_page()
            self._history = self._new_session(self._tab)
            for name in self.OUTLASTS:
                setattr(self._tab, name, self._changing(getattr(self._tab, name)))
            listen = self._tab.on

            def on(event: Any, heard: Callable[..., object]) -> None:
                self._listeners.append((event, heard))
                listen(event, heard)

            self._tab.on = on
        return self._tab

    def _changing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method; after a call the first tab is not used again."""

        def called(*args: Any, **options: Any) -> Any:
            self._changed = True
            return method(*args, **options)

        return called

    def _leave(self, tab: Page) -> bool:
        """Leaves the page, which may store nothing more; whether the tab is as new afterwards."""
        if self._changed or tab.is_closed() or len(self._origins) > 1:
            return False
        for event, heard in self._listeners:
            tab.remove_listener(event, heard)
        try:
            tab.evaluate("() => { Storage.prototype.setItem = () => {}; sessionStorage.clear() }")
            tab.mouse.move(-1, -1)
            tab.goto(BLANK)
            self._history.send("Page.resetNavigationHistory")
        except PlaywrightError:  # the tab has no page yet, or the page does not answer
            return False
        return True

    def empty(self) -> None:
        """Closes the pages but the first; removes what they have stored and what they were allowed."""
        if self._tab and self._taken and not self._leave(self._tab):
            self._tab.close()
            self._tab = None
        for page in self.context.pages:
            if page not in (self._blank, self._tab):
                page.close()
        self.context.clear_permissions()
        for origin in self._origins:
            self._session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        self._origins.clear()
        self._listeners.clear()
        self._taken = self._changed = False
