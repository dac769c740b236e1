"""Ctrl+C while a personal store takes a file in: the adding stops first, and the model is closed after it."""

from __future__ import annotations

import gc
import http.client
import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.app.web.test_server import address_of, child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")

SCRIPT = """
    import sys
    import time

    import app.learning.personal
    import core.autocomplete
    from tests.fake_autocomplete import FakeAutocomplete

    fake = FakeAutocomplete()
    fake.model.tokenizer = object()
    core.autocomplete.load_autocomplete = lambda *_, **__: fake.real()

    WORK = {"short": (2000, 1), "long": (20, 150)}  # steps, and looks at the model in each

    def add_file(self, store, path, name, progress):
        steps, looks = WORK[name]
        try:
            for _ in range(steps):
                progress(0.5)
                for _ in range(looks):  # one long call of compiled code, as a tokenizer's
                    time.sleep(0.01)
                    if fake.model.closed:
                        print("used after it was closed", file=sys.stderr)
        finally:
            print(f"the {name} adding ended", "after" if fake.model.closed else "before", "the model")

    app.learning.personal.PersonalStores.add_file = add_file
    from app.web.serving import serve

    serve(port=0, open_browser=False)
"""


def test_ctrl_c_ends_an_adding_before_the_model_is_closed(tmp_path: Path) -> None:
    process = child(SCRIPT, tmp_path)
    port, token = address_of(process)
    headers = {"Authorization": f"Bearer {token}"}
    connections = {name: http.client.HTTPConnection("127.0.0.1", port, timeout=20) for name in ("short", "long")}
    for _ in range(200):  # until the model is there
        connections["short"].request("GET", "/api/status", headers=headers)
        if json.loads(connections["short"].getresponse().read())["ready"]:
            break
        time.sleep(0.02)
    for name, connection in connections.items():
        connection.request("POST", f"/api/stores/add?store={name}&name={name}", b"Some text.", headers)
        assert json.loads(connection.getresponse().readline()) == {"type": "progress", "share": 0.5}
    began = time.perf_counter()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert sorted(out.splitlines()) == [f"the {name} adding ended before the model" for name in ("long", "short")]
    assert (err, process.returncode) == ("", 0)
    assert time.perf_counter() - began < 15  # and not after all the steps


def test_llama_cpps_tokenizer_works_after_its_model_was_closed(
    default_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.models import llamacpp

    freed: list[object] = []
    really = llamacpp.lib.llama_model_free
    monkeypatch.setattr(llamacpp.lib, "llama_model_free", lambda pointer: (freed.append(pointer), really(pointer)))
    model = llamacpp.load(default_gguf, "default")
    tokenizer = model.tokenizer
    expected = tokenizer.encode("Once upon a time")
    model.close()
    del model
    gc.collect()
    assert not freed
    assert tokenizer.encode("Once upon a time") == expected
    del tokenizer
    gc.collect()
    assert len(freed) == 1
