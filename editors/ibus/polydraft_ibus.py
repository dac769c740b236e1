#!/usr/bin/python3
"""An IBus engine that shows Polydraft's drafts in any text field of a Linux desktop. It is a proof of concept:
research/docs/ibus.md lists the missing parts.

Keys go to the application unchanged. After each of them the engine requests drafts for the text before the cursor and
shows them in IBus's list. Tab takes the first draft, Alt+1 … Alt+9 take another, Ctrl+→ takes a word of the first, Esc
hides the list. Run by the system's Python, which has IBus's bindings (python3-gi, gir1.2-ibus-1.0).

It needs a running `polydraft serve` of the same user, at the port in POLYDRAFT_PORT (7893 without it). Drafts
contain no slurs, unless POLYDRAFT_NO_SLURS is 0.
"""

import os
import threading
import uuid

import gi

gi.require_version("IBus", "1.0")
import own_server  # noqa: E402 it lies beside this file
from gi.repository import GLib, IBus  # noqa: E402 the version is chosen first

PORT = int(os.environ.get("POLYDRAFT_PORT", "7893"))
NO_SLURS = os.environ.get("POLYDRAFT_NO_SLURS") != "0"  # all drafts appear by themselves
CONTEXT = 2000  # characters before the cursor in a request
SECRET = (IBus.InputPurpose.PASSWORD, IBus.InputPurpose.PIN)
MODIFIERS = IBus.ModifierType.CONTROL_MASK | IBus.ModifierType.MOD1_MASK | IBus.ModifierType.SUPER_MASK


class PolydraftEngine(IBus.Engine):
    __gtype_name__ = "PolydraftEngine"

    def __init__(self, bus: IBus.Bus, path: str) -> None:
        super().__init__(connection=bus.get_connection(), object_path=path)
        self.session = uuid.uuid4().hex
        self.number = 0  # of the latest request; older responses are ignored
        self.drafts: list[str] = []
        self.secret = False

    # ---------------------------------------------------------------- called by IBus

    def do_process_key_event(self, key: int, code: int, state: int) -> bool:
        """Returns whether the engine used the key; if not, the application receives it."""
        if state & IBus.ModifierType.RELEASE_MASK or not self.drafts:
            return False
        held = state & MODIFIERS
        if key == IBus.KEY_Tab and not held:
            return self.take(self.drafts[0])
        if held == IBus.ModifierType.MOD1_MASK and IBus.KEY_1 <= key < IBus.KEY_1 + len(self.drafts):
            return self.take(self.drafts[key - IBus.KEY_1])
        if held == IBus.ModifierType.CONTROL_MASK and key == IBus.KEY_Right:
            return self.take(first_word(self.drafts[0]))
        if key == IBus.KEY_Escape:
            self.show([])
            return True
        return False

    def do_set_surrounding_text(self, text: IBus.Text, cursor: int, anchor: int) -> None:
        """The application reports its text after every change."""
        IBus.Engine.do_set_surrounding_text(self, text, cursor, anchor)
        self.number += 1
        if cursor != anchor or self.secret:
            self.show([])
            return
        before = text.get_text()[:cursor]
        self.show([])
        threading.Thread(target=self.request, args=(self.number, before[-CONTEXT:]), daemon=True).start()

    def do_focus_in(self) -> None:
        self.get_surrounding_text()  # requests the application's text from now on

    def do_enable(self) -> None:
        self.get_surrounding_text()

    def do_focus_out(self) -> None:
        self.number += 1
        self.show([])

    def do_set_content_type(self, purpose: int, hints: int) -> None:
        """Disables requests in password fields, and in fields that the application marks as private."""
        self.secret = purpose in SECRET or bool(hints & int(getattr(IBus.InputHints, "PRIVATE", 0)))

    # ---------------------------------------------------------------- drafts

    def request(self, number: int, before: str) -> None:
        """Requests drafts, in a separate thread. A newer request of the session stops this one in the server."""
        if not before.strip():
            return
        try:
            texts = own_server.drafts(PORT, before, self.session, NO_SLURS)
        except (own_server.Missing, OSError, ValueError, KeyError):
            return  # without a server, or if a newer request superseded this one, there are no drafts
        GLib.idle_add(self.arrived, number, [text for text in texts if text.strip()])

    def arrived(self, number: int, drafts: list[str]) -> bool:
        if number == self.number:
            self.show(drafts)
        return False

    def show(self, drafts: list[str]) -> None:
        self.drafts = drafts
        table = IBus.LookupTable.new(9, 0, False, False)
        table.set_orientation(IBus.Orientation.VERTICAL)
        for draft in drafts:
            table.append_candidate(IBus.Text.new_from_string("…" + draft.replace("\n", " ")))
        self.update_lookup_table(table, bool(drafts))

    def take(self, text: str) -> bool:
        self.show([])
        self.commit_text(IBus.Text.new_from_string(text))
        return True


def first_word(draft: str) -> str:
    end = len(draft) - len(draft.lstrip())
    while end < len(draft) and not draft[end].isspace():
        end += 1
    return draft[:end]


def main() -> None:
    IBus.init()
    bus = IBus.Bus()
    loop = GLib.MainLoop()
    bus.connect("disconnected", lambda _: loop.quit())
    made = []

    def create(_: IBus.Factory, name: str) -> PolydraftEngine:
        made.append(PolydraftEngine(bus, f"/org/freedesktop/IBus/Engine/Polydraft/{len(made)}"))
        return made[-1]

    factory = IBus.Factory.new(bus.get_connection())
    factory.connect("create-engine", create)
    bus.request_name("org.freedesktop.IBus.Polydraft", 0)
    loop.run()


if __name__ == "__main__":
    main()
