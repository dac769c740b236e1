"""`polydraft.DraftEditor` and `polydraft.attach` in Python; the browser's part is in test_draft_editor_page.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import gradio as gr
import httpx
import pytest
from fastapi import FastAPI
from gradio_client import Client
from gradio_client.exceptions import AppError
from starlette.testclient import TestClient

import polydraft
from app.machine.token import token
from app.web.attaching import service_for
from core.errors import InputError, PolydraftError
from tests.paths import ROOT
from tests.scripted_editor import blocks, launched, scripted_model

EXAMPLE = ROOT / "docs" / "examples" / "draft_editor.py"
BODY = {"tab": "a" * 24, "n": 1, "before": "Thank you", "settings": {"k": 2, "length": 3}}


def key_of(demo: gr.Blocks) -> str:
    return next(block.props["access"] for block in demo.blocks.values() if isinstance(block, polydraft.DraftEditor))


@pytest.fixture(scope="module")
def demo() -> Iterator[gr.Blocks]:
    with scripted_model():
        made = blocks(length=4)
        polydraft.attach(made)
        with launched(made):
            yield made


@pytest.fixture(scope="module")
def client(demo: gr.Blocks) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=str(demo.local_url)) as made:
        yield made


# ---------------------------------------------------------------- the component


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 99}, "k 99 given; a whole number from 1 to 9 expected."),
        ({"k": "3"}, "k '3' given; a whole number from 1 to 9 expected."),
        ({"rows": 3}, "'rows' given, which is no option; `polydraft complete --help` lists them, without `--`."),
        ({"rule": "min"}, "rule 'min' given; one of none, greedy,"),
        ({"rule": 3}, "rule 3 given; a name expected."),
        ({"min-p": 0.1}, "min-p is a flag of min-p, and the rule is none; add rule min-p."),
        ({"speculate": "lossless"}, "speculate given without mode; add one of greedy, sampled."),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_given(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        polydraft.DraftEditor(options=options)
    assert str(refused.value).startswith(message)


def test_a_component_is_bound_to_an_option_that_exists_with_a_value_that_it_can_have() -> None:
    with gr.Blocks(analytics_enabled=False):
        editor = polydraft.DraftEditor(options={"k": 2})
        with pytest.raises(InputError, match="'rows' given, which is no option"):
            editor.bind("rows", gr.Slider(1, 9, 3))
        with pytest.raises(InputError, match="k 12 given; a whole number from 1 to 9 expected"):
            editor.bind("k", gr.Slider(1, 20, 12))
        editor.bind("k", gr.Slider(1, 9, 5))
        editor.bind("rule", gr.Dropdown(["min-p", "top-p"], value="top-p"))
        assert editor.props["options"] == {"k": 5, "rule": "top-p"}


def test_its_value_is_a_text() -> None:
    editor = polydraft.DraftEditor("Hello <script>")
    assert editor.value == "Hello <script>"
    assert editor.postprocess(None) == editor.preprocess(None) == ""
    with pytest.raises(InputError, match="A value of the type int given; a text expected"):
        editor.postprocess(5)  # type: ignore[arg-type]


def test_events_are_not_lost_while_one_is_handled() -> None:
    with gr.Blocks(analytics_enabled=False) as made:
        editor = polydraft.DraftEditor()
        editor.take(lambda: None)
        editor.drafts(lambda: None)
        editor.change(lambda: None)
        editor.drafts(lambda: None, trigger_mode="once")
    assert [fn.trigger_mode for fn in made.fns.values()] == ["multiple", "always_last", "always_last", "once"]


# ---------------------------------------------------------------- attach


def test_attach_wants_complete_blocks_with_one_editor_once_and_its_own_name_for_the_endpoint(demo: gr.Blocks) -> None:
    with gr.Blocks(analytics_enabled=False) as taken:
        polydraft.DraftEditor().change(lambda: None, api_name="drafts")
    two = [polydraft.DraftEditor(render=False) for _ in range(2)]
    given: Any
    for given, message in (
        (blocks(gr.Textbox(render=False)), "The Blocks have no DraftEditor; one expected"),
        (blocks(*two), "The Blocks have 2 DraftEditors; one expected"),
        ("demo", r"A str given; gr\.Blocks expected"),
        (demo, "attached already"),
        (taken, "has the api_name 'drafts'"),
    ):
        with pytest.raises(InputError, match=message):
            polydraft.attach(given)
    with gr.Blocks(analytics_enabled=False) as made:
        polydraft.DraftEditor()
        with pytest.raises(InputError, match=r"call attach after the `with gr\.Blocks"):
            polydraft.attach(made)


def test_a_model_that_does_not_exist_ends_attach_and_leaves_the_blocks_as_they_were() -> None:
    made = blocks()
    with pytest.raises(PolydraftError, match="nowhere"):
        polydraft.attach(made, "/nowhere/model.gguf")
    with pytest.raises(InputError, match=r"https://box given"):
        polydraft.attach(made, allow_host=["https://box"])
    assert not key_of(made)
    assert not made.fns


def test_attach_switches_off_what_gradio_would_report_or_keep(demo: gr.Blocks) -> None:
    assert demo.analytics_enabled is False
    assert demo.run_history is False


def test_a_notebook_launches_closes_and_launches_again() -> None:
    with scripted_model():
        made = blocks()
        polydraft.attach(made)
    for _ in range(2):
        with launched(made) as url:
            headers = {"Authorization": f"Bearer {key_of(made)}"}
            assert httpx.get(f"{url}/polydraft/api/status", headers=headers).status_code == 200


def test_blocks_with_the_same_model_share_it_unless_it_could_not_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_model():
        first = service_for("default", "auto", "auto")
        assert service_for("default", "auto", "auto") is first
        assert service_for("default", "torch", "auto") is not first
        monkeypatch.setattr(first, "status", lambda: {"backend": "unavailable"})
        assert service_for("default", "auto", "auto") is not first


# ---------------------------------------------------------------- its routes


def test_drafts_are_for_the_page_that_has_the_key(demo: gr.Blocks, client: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {key_of(demo)}"}
    answer = client.post("/polydraft/api/drafts", json=BODY, headers=headers)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [draft["text"] for draft in lines[-2]["drafts"]] == [" one one one", " two two two"]
    assert client.post("/polydraft/api/drafts", json=BODY).status_code == 401
    users = {"Authorization": f"Bearer {token()}"}
    assert client.post("/polydraft/api/drafts", json=BODY, headers=users).status_code == 401
    for foreign in ({"Origin": "https://example.org"}, {"Host": "example.org"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/polydraft/api/drafts", json=BODY, headers=headers | foreign).status_code == 403


def test_its_scripts_need_no_key_and_are_not_for_other_sites(client: httpx.Client) -> None:
    script = "/polydraft/page/editor/embedded.js"
    assert client.get(script).status_code == 200
    assert client.get(script, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("path", ["api/stores", "api/model", "api/documents", "v1/completions", ""])
def test_the_blocks_get_nothing_else_of_polydraft(demo: gr.Blocks, client: httpx.Client, path: str) -> None:
    headers = {"Authorization": f"Bearer {key_of(demo)}"}
    assert client.post(f"/polydraft/{path}", json={}, headers=headers).status_code == 404


def test_a_page_under_another_name_gets_drafts_if_that_name_is_allowed() -> None:
    with scripted_model():
        made = blocks()
        server = TestClient(polydraft.attach(made, allow_host="box"), "http://127.0.0.1:7860")
    headers = {"Authorization": f"Bearer {key_of(made)}", "Host": "box:7860"}
    for origin, status in (("http://box:7860", 200), ("https://box:7860", 200), ("http://127.0.0.1:7860", 200)):
        assert server.get("/api/status", headers=headers | {"Origin": origin}).status_code == status
    assert server.get("/api/status", headers=headers | {"Origin": "http://tower"}).status_code == 403
    assert server.get("/api/status", headers=headers | {"Host": "tower"}).status_code == 403


def test_who_mounts_the_blocks_mounts_the_drafts_below_them() -> None:
    with scripted_model():
        made = blocks()
        server = polydraft.attach(made)
    site = FastAPI()
    site.mount("/demo/polydraft", server)
    page = TestClient(gr.mount_gradio_app(site, made, "/demo", run_history=False), "http://127.0.0.1")
    headers = {"Authorization": f"Bearer {key_of(made)}"}
    assert page.get("/demo/polydraft/api/catalogue", headers=headers).json()["controls"]["k"]["high"] == 9
    assert page.get("/demo/polydraft/page/editor/embedded.js").status_code == 200


# ---------------------------------------------------------------- gradio_client


def test_gradio_client_gets_drafts_with_the_users_token(demo: gr.Blocks) -> None:
    client = Client(str(demo.local_url), verbose=False)
    drafts = client.predict("Hello", 2, token(), api_name="/drafts")
    assert [draft["text"] for draft in drafts] == [" one one one one", " two two two two"]  # the editor's length
    assert all(0 < draft["probability"] < 1 for draft in drafts)
    with pytest.raises(AppError, match=r"The token is wrong\. Send the output of `polydraft token`"):
        client.predict("Hello", 2, key_of(demo), api_name="/drafts")
    with pytest.raises(AppError, match="k 20 given; a whole number from 1 to 9 expected"):
        client.predict("Hello", 20, token(), api_name="/drafts")


# ---------------------------------------------------------------- the package and its page of docs


def test_importing_the_package_imports_neither_gradio_nor_torch() -> None:
    code = "import polydraft, sys; print(sorted({'app', 'gradio', 'torch'} & sys.modules.keys()), polydraft.__all__)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout == "[] ['DraftEditor', 'attach']\n"
    with pytest.raises(AttributeError, match="has no attribute 'Editor'"):
        polydraft.Editor  # noqa: B018


def test_the_example_of_the_docs_is_the_file_and_short() -> None:
    example = EXAMPLE.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    assert f"```python\n{example}```" in page
    assert len(example.splitlines()) <= 25
