"""A browser's profile for the tests of one file: each test finds it empty, and pages load fast. Nothing moves in it: a
transition is drawn sixty times a second."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

from playwright.sync_api import Browser, CDPSession, Frame, Page, ViewportSize
from playwright.sync_api import Error as PlaywrightError

BLANK = "about:blank"
SIZE: ViewportSize = {"width": 1280, "height": 800}
KEPT = 2  # tabs; few tests need a third


class Tab:
    """A tab that test after test uses. One that has shown the page before shows it in half the processor time.

    What a test changed that outlasts a document is taken back: scripts, functions, routes, sizes, media, listeners,
    developer tools.
    """

    ADDED = ("add_init_script", "expose_function", "expose_binding")
    REVERSIBLE = ("emulate_media", "route", "set_viewport_size")

    def __init__(self, page: Page, history: CDPSession) -> None:
        self.page, self._history = page, history
        self._changed = False
        self._listeners: list[tuple[str, Callable[..., object]]] = []
        self._added = ExitStack()
        for name in self.ADDED:
            setattr(page, name, self._removing(getattr(page, name)))
        for name in self.REVERSIBLE:
            setattr(page, name, self._noting(getattr(page, name)))
        listen = page.on

        def on(event: Any, heard: Callable[..., object]) -> None:
            self._listeners.append((event, heard))
            listen(event, heard)

        page.on = on

    def _removing(
        self, method: Callable[..., AbstractContextManager[Any]]
    ) -> Callable[..., AbstractContextManager[Any]]:
        """The method; `leave` removes what each call adds."""
        return lambda *args, **options: self._added.enter_context(method(*args, **options))

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method; `leave` takes back what any call changed."""

        def called(*args: Any, **options: Any) -> Any:
            self._changed = True
            return method(*args, **options)

        return called

    def leave(self) -> bool:
        """Leaves the page, which may store nothing more; whether the tab is as new afterwards."""
        if self.page.is_closed():
            return False
        for event, heard in self._listeners:
            self.page.remove_listener(event, heard)
        self._listeners.clear()
        try:
            self._added.close()
            self.page.evaluate("() => { Storage.prototype.setItem = () => {}; sessionStorage.clear() }")
            self.page.mouse.move(-1, -1)
            if self._changed:
                self.page.unroute_all(behavior="ignoreErrors")
            self.page.goto(BLANK)
            if self._changed:
                self.page.set_viewport_size(SIZE)
                self.page.emulate_media(color_scheme="null", forced_colors="null", media="null")
            self._history.send("Page.resetNavigationHistory")
        except PlaywrightError:  # the tab has no page yet, or the page does not answer
            return False
        self._changed = False
        return True


class Profile:
    """A browser's profile that can be emptied. Its cache keeps the page's some 80 files."""

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context(viewport=SIZE, reduced_motion="reduce")
        self._new_page, self._new_session = self.context.new_page, self.context.new_cdp_session
        self._blank = self._new_page()
        self._session = self._new_session(self._blank)
        self._origins: set[str] = set()
        self.context.on("page", lambda page: page.on("framenavigated", self._note))
        self._tabs: list[Tab] = []
        self._taken = 0  # of the tabs, by this test
        self._sessions: list[CDPSession] = []
        self.context.new_page = self._page
        self.context.new_cdp_session = self._tools

    def _note(self, frame: Frame) -> None:
        if frame.url != BLANK:
            self._origins.add("/".join(frame.url.split("/")[:3]))

    def _page(self) -> Page:
        """The next tab that is kept, or a new one."""
        if self._taken == KEPT:
            return self._new_page()
        if self._taken == len(self._tabs):
            page = self._new_page()
            self._tabs.append(Tab(page, self._new_session(page)))
        self._taken += 1
        return self._tabs[self._taken - 1].page

    def _tools(self, page: Page | Frame) -> CDPSession:
        self._sessions.append(self._new_session(page))
        return self._sessions[-1]

    def empty(self) -> None:
        """Closes the pages but those that are kept; removes what they have stored and what they were allowed."""
        for session in self._sessions:
            with suppress(PlaywrightError):  # of a tab that is closed
                session.detach()
        reusable = len(self._origins) < 2
        for tab in self._tabs[: self._taken]:
            if not (tab.leave() and reusable):
                self._tabs.remove(tab)
        kept = [self._blank, *(tab.page for tab in self._tabs)]
        for page in self.context.pages:
            if page not in kept:
                page.close()
        self.context.clear_permissions()
        for origin in self._origins:
            self._session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        self._origins.clear()
        self._sessions.clear()
        self._taken = 0
