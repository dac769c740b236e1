"""The language server: the features of the protocol that `polydraft lsp` has.

textDocument/inlineCompletion      the drafts at the caret, each as an item
workspace/executeCommand           the editor reports the draft that the user accepted
workspace/didChangeConfiguration   settings; also from initializationOptions
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, BinaryIO, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from app.clients.lsp.connection import Connection
from app.clients.lsp.picked import Picked
from app.clients.lsp.places import in_comment, is_prose
from app.clients.lsp.settings import SECTION, parsed_settings, section
from app.clients.lsp.text import Documents
from app.clients.requests import WINDOW, cropped
from core.errors import PolydraftError

ACCEPTED = "polydraft.accepted"
MOST_HEADER, MOST_MESSAGE = 4096, 64 << 20  # bytes
PAUSE_S = 1.0  # without a key, until drafts appear with *After a pause*


class DraftingLanguageServer(LanguageServer):
    """The server for one editor, with its settings and its connection."""

    def __init__(self) -> None:
        super().__init__(
            "polydraft", version("polydraft"), text_document_sync_kind=types.TextDocumentSyncKind.Incremental
        )
        self.settings = parsed_settings()
        self.connection = Connection()
        self.first: Any = {}  # initializationOptions; later settings are added to them
        self.picked: Picked | None = None
        self._shown = ""  # the last error, which is not repeated at every key

    @property
    def documents(self) -> Documents:
        """The editor's open documents."""
        assert isinstance(self.workspace, Documents)
        return self.workspace

    def take_first_settings(self) -> None:
        """Applies those that came at the start. If one is invalid, shows an error, and forgets them."""
        if not self.change_settings({}):
            self.first = {}

    def change_settings(self, given: Any) -> bool:
        """Applies the editor's settings, in addition to the first ones; true if all are valid. If one is invalid, shows
        an error and keeps all settings."""
        try:
            self.settings = parsed_settings(self.first, section(given))
        except PolydraftError as error:
            self.show(f"The settings of Polydraft are not changed: {error}")
            return False
        self._shown = ""
        self.connection.retry()
        return True

    def show(self, message: str) -> None:
        """Shows an error to the user, once."""
        if message != self._shown:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, message))
        self._shown = message

    async def drafts(self, params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        """Returns the drafts at a position; [] at places without drafts, and in a document that is not open. Raises
        InputError."""
        document = self.documents.open_document(params.text_document.uri)
        if document is None:
            return []
        text, language, settings = document.source, document.language_id or "", self.settings
        caret = document.offset(params.position)
        if not is_prose(language, settings):
            place = (text, caret, language, document.path)
            if not settings.comments or not await asyncio.to_thread(in_comment, *place):
                return []
        unasked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Automatic
        if unasked and settings.show == "demand":
            return []
        if unasked and settings.show == "pause":
            await asyncio.sleep(PAUSE_S)  # the next key cancels this request
        start, replaced, chosen = caret, types.Range(params.position, params.position), ""
        if selected := params.context.selected_completion_info:  # this entry of the editor's own list is selected
            start, replaced, chosen = document.offset(selected.range.start), selected.range, selected.text
        before, after = text[:start] + chosen, text[caret : caret + WINDOW]
        session = f"polydraft lsp {os.getpid()} {document.uri}"
        show = "time" if unasked and settings.show == "time" else "all"
        background = cropped("\n\n".join(self.documents.matching(settings.background, but=document)))
        texts = await self.connection.drafts(settings, session, cropped(before), after, show, background, unasked)
        self._shown = ""
        return [
            types.InlineCompletionItem(
                insert_text=chosen + draft,
                range=replaced,
                command=types.Command(
                    "Accept the draft", ACCEPTED, arguments=[asdict(Picked.of(document.uri, before, draft))]
                ),
            )
            for draft in texts
        ]

    async def settle(self) -> None:
        """Learns the draft accepted before, unless the user has undone it. Called when the user types on or saves."""
        picked, self.picked = self.picked, None
        document = self.documents.open_document(picked.uri) if picked else None
        if picked and document and picked.is_in(document.source):
            await self.connection.learn(self.settings, picked.phrase)


def create_server() -> DraftingLanguageServer:
    server = DraftingLanguageServer()

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.first = section(params.initialization_options)
        workspace = server.workspace
        server.protocol._workspace = Documents(
            workspace.root_uri,
            types.TextDocumentSyncKind.Incremental,
            list(workspace.folders.values()),
            workspace.position_encoding,
        )

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        server.take_first_settings()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configured(params: types.DidChangeConfigurationParams) -> None:
        given = params.settings
        workspace = server.client_capabilities.workspace
        if given is None and workspace and workspace.configuration:  # this editor sends settings only on request
            query = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
            (given,) = await server.workspace_configuration_async(query)
        server.change_settings(given)

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def complete(params: types.InlineCompletionParams) -> types.InlineCompletionList:
        try:
            return types.InlineCompletionList(await server.drafts(params))
        except PolydraftError as error:
            server.show(str(error))
            return types.InlineCompletionList([])

    async def settled(_: Any) -> None:
        try:
            await server.settle()
        except PolydraftError as error:
            server.show(str(error))

    server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(settled)
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(settled)

    @server.command(ACCEPTED)
    async def accepted(picked: dict[str, Any]) -> None:
        await settled(None)
        server.picked = Picked(**picked)

    return server


class BoundedInput:
    """Standard input that ends where a message is announced that no editor sends, before memory is asked for it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        line = self._stream.readline(MOST_HEADER)
        if len(line) == MOST_HEADER:
            return self._refused(f"A header line of {MOST_HEADER} bytes or more", f"less than {MOST_HEADER} bytes")
        return line

    def read(self, size: int) -> bytes:
        if size > MOST_MESSAGE:
            return self._refused(f"A message of {size} bytes", f"at most {MOST_MESSAGE} bytes")
        return self._stream.read(size)

    def _refused(self, came: str, expected: str) -> bytes:
        sys.stderr.write(f"{came} given; {expected} expected. The language server ends; restart it.\n")
        return b""


def run() -> None:
    """Serves one editor on standard input and output, until it ends the connection."""
    create_server().start_io(cast(BinaryIO, BoundedInput(sys.stdin.buffer)))
