"""Every field of every request has a bound, and what is beyond it is refused before it costs anything."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from starlette.routing import Mount, Route

from app.clients.choices import begun_at_the_end, whole_words
from app.clients.requests import STRIDE, cropped
from app.service.requests import DraftRequest
from app.service.service import DraftService
from app.web.site import create_app, create_service_app
from app.wire.bounds import MOST_NAMES, MOST_STOPS
from app.wire.refusals import BODIES
from tests.fake_autocomplete import FakeAutocomplete
from tests.shared_cases import cases

# A route that reads a body by itself: an upload, which `MAX_FILE` bounds.
STREAMED = {"/api/stores/add"}


def unbounded(schema: Any, at: str, refs: dict[str, Any]) -> Iterator[str]:
    """The places in a schema of pydantic's core that accept a text, a list, an object or a number of any size."""
    kind = schema["type"]
    if kind == "definitions":
        refs = refs | {one["ref"]: one for one in schema["definitions"]}
    if kind == "definition-ref":
        yield from unbounded(refs.pop(schema["schema_ref"], {"type": "none"}), at, refs)
    elif kind in ("str", "bytes"):
        yield from [] if "max_length" in schema else [f"{at}: a {kind}"]
    elif kind in ("int", "float"):
        bounds = {"ge", "gt"} & schema.keys() and {"le", "lt"} & schema.keys()
        yield from [] if bounds else [f"{at}: a number"]
    elif kind in ("list", "dict"):
        yield from [] if "max_length" in schema else [f"{at}: a {kind}"]
        if schema.get("max_length") != 0:
            for part in ("items_schema",) if kind == "list" else ("keys_schema", "values_schema"):
                yield from unbounded(schema.get(part, {"type": "any"}), f"{at}[]", refs)
    elif kind == "tuple":
        for one in schema["items_schema"]:
            yield from unbounded(one, f"{at}[]", refs)
    elif kind == "model-fields":
        for name, one in schema["fields"].items():
            yield from unbounded(one["schema"], f"{at}.{name}", refs)
        if "extras_schema" in schema:
            yield from unbounded(schema["extras_schema"], f"{at}.*", refs)
    elif kind == "model":
        extra = schema.get("config", {}).get("extra_fields_behavior")
        fields = schema["schema"]
        while fields["type"] == "function-before":  # a validator of the whole body
            fields = fields["schema"]
        if extra == "allow" and "extras_schema" not in fields:
            yield f"{at}.*: any field"
        yield from unbounded(schema["schema"], at, refs)
    elif kind == "union":
        for one in schema["choices"]:
            yield from unbounded(one[0] if isinstance(one, tuple) else one, at, refs)
    elif kind not in ("bool", "none", "literal"):
        inner = schema.get("schema")  # of nullable, default, definitions, function-before, …
        yield from [f"{at}: {kind}"] if inner is None else unbounded(inner, at, refs)


def fields_of(app: FastAPI) -> Iterator[tuple[str, Any]]:
    """The schema of every body and of every part of an address that the app's own routes take."""
    for route in app.routes:
        if isinstance(route, Mount):
            continue  # the page's files; `OnlyNeeded` closes what Gradio has
        assert isinstance(route, Route | APIRoute), route
        writes = {"POST", "PUT", "PATCH", "DELETE"} & (route.methods or set()) and route.path not in STREAMED
        if writes and inspect.signature(route.endpoint).parameters:  # otherwise it reads no body
            assert route.endpoint in BODIES, f"{route.path} reads its body itself; use `taking` or `post`."
            yield route.path, BODIES[route.endpoint].__pydantic_core_schema__
        if isinstance(route, APIRoute):
            assert not route.dependant.body_params
            for kind in ("path_params", "query_params", "header_params", "cookie_params"):
                for one in getattr(route.dependant, kind):
                    yield f"{route.path}?{one.name}", one._type_adapter.core_schema
        else:
            assert "{" not in route.path, f"{route.path} has an unbounded part."


@pytest.mark.parametrize("build", [create_app, create_service_app])
def test_every_field_of_every_route_has_a_bound(build: Callable[[DraftService], FastAPI]) -> None:
    found = list(fields_of(build(DraftService(FakeAutocomplete().real))))
    assert len(found) >= (30 if build is create_app else 12)
    assert [place for path, schema in found for place in unbounded(schema, path, {})] == []


@pytest.mark.parametrize(
    "kind", [str, int, float, list[bool], dict[str, bool], Any, object, list[str] | None, bool | dict[bool, int]]
)
def test_a_field_without_a_bound_is_found(kind: Any) -> None:
    assert list(unbounded(TypeAdapter(kind).core_schema, "field", {}))


# ---------------------------------------------------------------- what is beyond a bound


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    service = DraftService(FakeAutocomplete().real)
    service.start()
    with TestClient(create_app(service), base_url="http://127.0.0.1") as made:
        yield made
    service.close()


DRAFTS = {"tab": "a", "n": 1, "before": "Once"}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/drafts", DRAFTS | {"stores": ["me"] * 2}, "'me' given twice"),
        ("/api/drafts", DRAFTS | {"stores": [str(i) for i in range(60_000 // 4)]}, f"at most {MOST_NAMES}"),
        ("/api/drafts", DRAFTS | {"n": 2**60}, "n is"),
        ("/api/drafts", DRAFTS | {str(i): 1 for i in range(10_000)}, "is no field that the server knows."),
        ("/api/drafts", DRAFTS | {"settings": {"sampling": {"rule": "top-k," * 10_000}}}, "longer than 200"),
        ("/v1/completions", {"prompt": "a", "stores": ["b"] * 2}, "given twice"),
        ("/v1/completions", {"prompt": "a", "stop": ["b"] * (MOST_STOPS + 1)}, f"at most {MOST_STOPS}"),
        ("/v1/completions", {"prompt": "a", "stop": "b" * 200_000}, "stop.0 is longer than 200"),
        ("/v1/completions", {"prompt": "a", "top_k": [1] * 1000}, "a number, true, false or a short text expected"),
        ("/infill", {"stop": [str(i) for i in range(10_000)]}, f"at most {MOST_STOPS}"),
        ("/infill", {"input_extra": [{"text": "a"}] * 10_000}, "at most 256"),
        ("/api/model", {"model": "a\0b"}, "zero character"),
        ("/api/base-stores/add", {"file": "a\0b"}, "zero character"),
    ],
)
def test_what_is_beyond_a_bound_is_refused_in_a_short_sentence(
    client: TestClient, path: str, body: dict[str, Any], words: str
) -> None:
    response = client.post(path, json=body)
    assert response.status_code in (400, 422)
    assert words in response.text
    assert len(response.text) < 2000


VALUES = {
    "lists": b"[" + b"[]," * 10_000_000 + b"1]",
    "texts": b"[" + b'"",' * 8_000_000 + b'""]',
    "names": b"{" + b'"a":1,' * 5_000_000 + b'"a":1}',
}


@pytest.mark.parametrize("what", VALUES)
def test_a_body_of_millions_of_values_is_refused_before_it_is_parsed(client: TestClient, what: str) -> None:
    began = time.process_time()
    refused = client.post("/api/documents/write", content=VALUES[what])
    assert (refused.status_code, refused.json()["message"]) == (422, "The request has more than 80,000 values.")
    assert time.process_time() - began < 1.5  # parsed: more than 4


@pytest.mark.parametrize("text", [",[{" * 200_000, '",\\"[\\\\' * 200_000, "é,\n" * 200_000])
def test_a_text_may_have_as_many_commas_and_brackets_as_it_likes(client: TestClient, text: str) -> None:
    body = {"id": "0123456789", "title": text, "text": text}
    refused = client.post("/api/documents/write", json=body).json()
    assert refused["message"].startswith("title is longer than 1000 characters. base is missing.")


def test_parts_of_an_address_are_refused_as_bodies_are(client: TestClient) -> None:
    response = client.get("/api/documents/" + "a" * 65)
    assert (response.status_code, "longer than 64" in response.json()["message"]) == (422, True)
    assert "longer than 200" in client.get("/v1/models/" + "a" * 201).json()["error"]["message"]
    assert client.post("/api/stores/add").json()["message"] == "query.store is missing. query.name is missing."


# ---------------------------------------------------------------- how much of a text is sent


@pytest.mark.parametrize("case", cases("lengths"))
def test_the_server_accepts_as_much_text_as_the_page_sends(case: dict[str, Any]) -> None:
    body = DRAFTS | {case["field"]: "x" * case["sent"]}
    assert len(getattr(DraftRequest(**body), case["field"])) == case["sent"]


@pytest.mark.parametrize("case", cases("windows"))
def test_the_text_of_a_program_is_cut_where_the_page_would_cut_it(case: dict[str, int]) -> None:
    length = case["strides"] * STRIDE + case["more"]
    assert length - len(cropped("x" * length)) == case["start"] * STRIDE


# ---------------------------------------------------------------- stops


@given(st.text("ab ", max_size=12), st.text("ab ", min_size=1, max_size=6))
def test_the_beginning_of_a_stop_is_found(text: str, stop: str) -> None:
    assert begun_at_the_end(text, stop) == max(
        n for n in range(len(stop)) if re.search(re.escape(stop[:n]) + r"\Z", text)
    )
    assert whole_words(text) == re.sub(r"\s*\S*\Z", "", text, count=1)
