"""The local server: its port, uvicorn and the browser, for this machine only."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from app.learning.base_stores import in_full, shelf_of
from app.machine import ending, running
from app.machine.output import say
from app.machine.running import PORT
from app.machine.token import token
from app.options.speculation import offer_draft_model
from app.service.background import learner_for, resume_learning
from app.service.recovery import load_failure
from app.service.service import DraftService
from app.service.threads import take_turns_quickly
from app.web.security.access import Access
from app.web.security.allowed import allowed
from app.web.security.connections import configured
from app.web.security.guard import HOST
from app.web.site import create_app, create_service_app
from core.errors import InputError, traced
from core.options import Backend, Precision

if TYPE_CHECKING:
    from app.learning.learner import Learner
    from core.autocomplete import Autocomplete

# A command to run once the model is loaded: `make run` compiles llama.cpp this way.
ONCE_LOADED = "POLYDRAFT_ONCE_LOADED"
GRACE = 0.5  # seconds for each of the service's threads when the server ends


class _Server(uvicorn.Server):
    """uvicorn that reports when it is ready, and stops running requests before it waits for them."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self._ending = ready, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def stop(self) -> None:
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            ending.leave(128 + sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def serve(
    model_name: str = "default",
    backend: Backend = "auto",
    port: int | None = None,
    open_browser: bool = True,
    precision: Precision = "auto",
    with_token: bool = True,
    base_store: list[str] | None = None,
    draft_model: str | None = None,
    page: bool = True,
    host: str = HOST,
    allow_origin: Sequence[str] = (),
    allow_host: Sequence[str] = (),
    cache: int | None = None,
) -> None:
    """Runs the app until Ctrl+C; or opens the page of this user's app that already runs at the port.

    Args:
        port: None is `PORT`; 0 means any.
        with_token: whether requests must present the user's token.
        base_store: the base stores, as `core.ngram.base.chosen_stores` takes them; None is the choice on the page.
        draft_model: the model that may propose tokens for speculation; None for none.
        page: False serves only other programs, without the page.
        allow_origin, allow_host: see `app.web.security.allowed`.
        host: the address to listen at; at an address that other machines can reach, the page is not served.
        cache: the most bytes of the model's cache; None is `core.models.memory.usual_limit`.
    Raises: InputError for an unusable port; StoreError for a file that is no n-gram store; ModelNotFound,
        ModelFileError for a model that does not exist or cannot be read. If a model fails later, the page reports it.
    """
    also = allowed(allow_origin, allow_host)
    options: dict[str, object] = {"model": model_name, "backend": backend, "precision": precision}
    options |= {"with_token": with_token, "draft_model": draft_model, "base_store": in_full(base_store)}
    options |= {"allow_origin": sorted(also.origins), "allow_host": sorted(also.hosts), "cache_memory": cache}
    bases = shelf_of(base_store)  # a wrong file ends the start
    access = Access(token()) if with_token else None
    wanted = PORT if port is None else port
    listener = _listen(wanted, host)  # first, so that a taken port is detected before seconds of loading
    if listener is None:
        _open_running(wanted, options, access, open_browser, page)
        return
    bound: int = listener.getsockname()[1]

    def load(name: str, chosen: Precision = precision) -> Autocomplete:
        from core.autocomplete import load_autocomplete

        try:
            loaded = load_autocomplete(name, backend, precision=chosen, in_background=True, bases=bases, prose=True)
            if draft_model is not None:
                offer_draft_model(loaded, draft_model, backend, precision)
            _settle(loaded, cache)
        except Exception as error:
            say(" ".join(load_failure(error)).strip(), err=True)
            raise
        once_loaded()
        return loaded

    def ready() -> None:
        if page:
            _tell("Polydraft is at", bound, access, open_browser)
        else:
            tell_programs("Polydraft serves drafts at", host, bound, access)

    # Programs of this user that find the registration send the token to 127.0.0.1.
    marked = running.marked(bound, options | {"page": page}) if _is_here(host) else nullcontext()
    service: DraftService | None = None
    with (
        ending.without_threads(lambda: service is not None and service.running),
        listener,
        marked,
        running.beside(os.environ.get(ONCE_LOADED)) as once_loaded,
        ExitStack() as at_end,
    ):
        for name in {model_name, draft_model or "default"} - {"default"}:
            from core.models.load import find_model  # imports torch

            find_model(name)  # a mistyped name ends the start; after later failures the page stays up
        service = DraftService(load, model_name)
        at_end.callback(service.close, GRACE)
        if page:
            learner = _learning(service)
            at_end.callback(learner.close)
            app = create_app(service, access, learner, also)
        else:
            app = create_service_app(service, access, _is_elsewhere(host), also)
        # After the page: two threads that import at the same time share one interpreter lock, and the page would answer
        # later. Torch is imported and the model loaded while the server starts and the browser loads the page.
        service.start()
        take_turns_quickly()
        config = configured(app, timeout_graceful_shutdown=1)
        for adapted in (_not_about_leaving, without_text):
            logging.getLogger("uvicorn.error").addFilter(adapted)
        server = _Server(config, ready, service.stop)
        with suppress(KeyboardInterrupt), ending.noted(server.stop):
            server.run(sockets=[listener])


def _settle(loaded: Autocomplete, cache: int | None) -> None:
    """Bounds the cache of a model that was loaded, frees what loading it took, and says what there is to say of it."""
    from core.memory import return_freed

    if cache is not None and not loaded.model.cache_grows:
        where = f"{loaded.model.backend} on {loaded.model.device}"
        loaded.remark(f"--cache-memory changes nothing for {where}, whose cache has a fixed size.")
    loaded.model.most_cache = cache
    return_freed()
    if loaded.notice:
        say(loaded.notice, err=True)


def _learning(service: DraftService) -> Learner:
    """What trains adapters for the service. It goes on with what an earlier server has left once a model is there."""
    learner = learner_for(service)
    go_on = partial(resume_learning, learner, service)
    service.adopted = lambda: threading.Thread(target=go_on, daemon=True).start()
    return learner


def _is_elsewhere(host: str) -> bool:
    """Whether other machines can reach a server that listens at this address."""
    return host != "localhost" and not host.startswith("127.")


def _is_here(host: str) -> bool:
    """Whether a server that listens at this address has its port on 127.0.0.1. Another user may have that otherwise."""
    return host in (HOST, "localhost", "0.0.0.0")


def _listen(port: int, host: str = HOST) -> socket.socket | None:
    """A socket bound to 127.0.0.1, or to another address; None if the port is taken.

    Raises: InputError if it cannot be bound for another reason.
    """
    # asyncio disables Nagle's algorithm only if the protocol is given explicitly; with it, every first draft waits some
    # 40 ms for the browser's delayed acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if sys.platform != "win32":  # allows a port that this process used a moment ago; on Windows it would share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # A bind may succeed beside another listener on the same port.
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise InputError(f"{host} is no IPv4 address of this machine; give one with --host.") from error
        raise InputError(f"Port {port} cannot be used: {error.strerror}. Choose another with --port.") from error
    return listener


def _open_running(port: int, options: dict[str, object], access: Access | None, open_browser: bool, page: bool) -> None:
    """Opens the page of the app that this user runs at the port. Raises InputError if another program has it."""
    server = running.at(port)
    if server is None:
        raise InputError(
            f"Port {port} is already in use by another program. Choose another with --port N; texts that you wrote at "
            f"port {port} belong to that address and return when Polydraft has it again."
        )
    different = [f"{name} {server.get(name)}" for name, value in options.items() if server.get(name) != value]
    if different:
        raise InputError(
            f"Port {port} is already in use by Polydraft, started with {', '.join(different)}. Stop it first, "
            "or start a second one with --port N."
        )
    if not page:
        tell_programs("Polydraft is already running, and serves drafts at", HOST, port, access)
    elif server.get("page", True):
        _tell("Polydraft is already running at", port, access, open_browser)
    else:
        raise InputError(
            f"Port {port} is already in use by `polydraft serve`, which has no page. End it first, and start "
            "`polydraft`: it serves programs too. Or start it beside with --port N."
        )


def tell_programs(words: str, host: str, port: int, access: Access | None) -> None:
    """Prints the address for other programs, the required token, and warnings about open access."""
    elsewhere = _is_elsewhere(host)
    address = f"http://{host}:{port}"
    if elsewhere:
        say(
            f"Warning: --host {host} gives other machines access. The traffic is not encrypted: "
            "use it only in a network that you trust.",
            err=True,
        )
    if access is None:
        who = "every program that reaches this machine" if elsewhere else "every user and every program of this machine"
        say(
            f"Warning: without a token {who} can get drafts from your personal stores, and add text to those that "
            f"learn, at {address}.",
            err=True,
        )
    say(f"{words} {address}: /v1/completions, /v1/models, /infill, /health.")
    if access is not None:
        say("Programs send the output of `polydraft token` as `Authorization: Bearer`, or as their API key.")


def _tell(words: str, port: int, access: Access | None, open_browser: bool) -> None:
    """Prints the page's address, and opens it."""
    address = f"http://{HOST}:{port}"
    if access is None:
        say(
            "Warning: without a token every user and every program of this machine can read and change your "
            f"personal stores through {address}.",
            err=True,
        )
    say(f"{words} {address}" + (f"/?token={access.token}" if access else ""))
    if open_browser:
        _show(f"{address}/?ticket={access.ticket()}" if access else address)


def _show(address: str) -> None:
    """Opens the page in the default browser, if there is one with a window."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return  # only text browsers are left, which would take over the terminal
    # In a separate thread, because some browsers return only when they are closed.
    threading.Thread(target=_open, args=(address,), daemon=True).start()


def _open(address: str) -> None:
    with suppress(webbrowser.Error):
        webbrowser.open(address)


def _not_about_leaving(record: logging.LogRecord) -> bool:
    """Drops the error that uvicorn logs for open pages when it ends: Ctrl+C is not an error to the user."""
    return not record.getMessage().startswith("Cancel ")


def without_text(record: logging.LogRecord) -> bool:
    """Reduces the error of a route to its types and lines of code; its message may repeat the text of a request."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = f"{record.getMessage().strip()}\n{traced(record.exc_info[1])}", ()
        record.exc_info = record.exc_text = None
    return True
