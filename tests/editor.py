"""An editor that runs `polydraft lsp`, and the drafting server of the same user that it asks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from lsprotocol import types
from pytest_lsp import LanguageClient, make_test_lsp_client
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.machine import running
from app.machine.token import token
from app.service.service import DraftService
from app.web.security.access import Access
from app.web.site import create_service_app
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import ByteTokenizer, Server

COMMAND = [sys.executable, "-P", "-m", "polydraft", "lsp"]
INVOKED = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Invoked)


class Bodies:
    """Notes the bodies of requests on their way to the app."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.seen = app, list[dict[str, Any]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted() -> Message:
            message = await receive()
            if message["type"] == "http.request" and (body := message["body"]):
                self.seen.append(json.loads(body))
            return message

        await self.app(scope, noted if scope["type"] == "http" else receive, send)


class Drafting:
    """The real routes for programs, over a scripted model; registered as this user's server at its port."""

    def __init__(self) -> None:
        self.autocomplete = FakeAutocomplete()
        cast(Any, self.autocomplete.model).tokenizer = ByteTokenizer()
        self.service = DraftService(self.autocomplete.real, "scripted")
        self.service.start()
        self.bodies = Bodies(create_service_app(self.service, Access(token())))
        self.server = Server(cast(Any, self.bodies))
        self.port = self.server.port

    def close(self) -> None:
        self.server.stop()
        self.service.close()


@contextmanager
def drafting_server() -> Iterator[Drafting]:
    drafting = Drafting()
    with running.marked(drafting.port, {"page": False}):
        yield drafting
    drafting.close()


class Editor:
    """What the tests do in an editor."""

    def __init__(self, client: LanguageClient, capabilities: types.ServerCapabilities) -> None:
        self.client, self.capabilities = client, capabilities
        self.versions: dict[str, int] = {}

    def write(self, text: str, language: str = "markdown", name: str = "letter.md") -> str:
        """Opens a document, or changes it to this text; returns its address."""
        uri = f"file:///{name}"
        self.versions[uri] = version = self.versions.get(uri, 0) + 1
        if version == 1:
            item = types.TextDocumentItem(uri, language, version, text)
            self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        else:
            changes = [types.TextDocumentContentChangeWholeDocument(text)]
            at = types.VersionedTextDocumentIdentifier(version, uri)
            self.client.text_document_did_change(types.DidChangeTextDocumentParams(at, changes))
        return uri

    def params(
        self, uri: str, line: int, character: int, context: types.InlineCompletionContext = INVOKED
    ) -> types.InlineCompletionParams:
        at = types.Position(line, character)
        return types.InlineCompletionParams(context, types.TextDocumentIdentifier(uri), at)

    async def drafts(self, uri: str, line: int, character: int, **more: Any) -> list[types.InlineCompletionItem]:
        params = self.params(uri, line, character, **more)
        found = await asyncio.wait_for(self.client.text_document_inline_completion_async(params), 60)
        assert isinstance(found, types.InlineCompletionList)
        return list(found.items)

    async def accept(self, item: types.InlineCompletionItem) -> None:
        assert item.command
        asked = types.ExecuteCommandParams(item.command.command, item.command.arguments)
        await self.client.workspace_execute_command_async(asked)

    def configure(self, settings: Any) -> None:
        self.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))

    def kill(self) -> None:
        """Kills the language server, without a chance to end anything."""
        process = self.client._server
        assert process
        process.kill()

    @property
    def messages(self) -> list[str]:
        return [message.message for message in self.client.messages]


@asynccontextmanager
async def editor(
    options: Any = None,
    encodings: list[types.PositionEncodingKind | str] | None = None,
    pulls: bool = False,
    command: Sequence[str] = COMMAND,
) -> AsyncIterator[Editor]:
    """An editor with these initializationOptions, which ends the language server in order."""
    client = make_test_lsp_client()
    await client.start_io(*command)
    capabilities = types.ClientCapabilities(
        general=types.GeneralClientCapabilities(position_encodings=encodings),
        workspace=types.WorkspaceClientCapabilities(configuration=pulls),
    )
    params = types.InitializeParams(capabilities, initialization_options=options)
    result = await asyncio.wait_for(client.initialize_session(params), 60)
    try:
        yield Editor(client, result.capabilities)
    finally:
        if client._server and client._server.returncode is None:
            await asyncio.wait_for(client.shutdown_session(), 20)
        await client.stop()
