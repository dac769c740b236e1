"""A long text in parts, in real Chromium: the field contains one part, and everything else sees the whole text."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from app.documents.folder import DocumentFolder, Entry
from tests.app.static.documents.test_documents_page import (
    context,
    editor,
    fake,
    folder,
    keep_as,
    saved,
    server,
    shared,
    tab,
)
from tests.app.static.editor.test_page import Editor
from tests.fake_drafts import Server

__all__ = ["context", "editor", "fake", "folder", "server", "shared", "tab"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

SENTENCE = "The keeper read it twice and then sat down by the window to think about what it said. "
MOST = 512_000  # UTF-16 units in the field


def novel(length: int) -> str:
    """Numbered paragraphs with an empty line between them."""
    paragraph = len(SENTENCE) * 6 + 9
    return "\n\n".join(f"[{n:06}] {(SENTENCE * 6).strip()}" for n in range(length // paragraph))


TEXT = novel(700_000)
SECRET = "κρυφό κείμενο"


DROP = """(text) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], "Novel.txt"));
    polydraft.editor.textarea.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""


def opened(editor: Editor, text: str = TEXT) -> Editor:
    editor.page.evaluate(DROP, text)
    editor.wait(lambda: editor.page.evaluate("polydraft.editor.parts.length") == len(text), "the text")
    editor.box.focus()
    return editor


def whole(editor: Editor) -> str:
    return editor.page.evaluate("polydraft.editor.text")


def selection(editor: Editor) -> list[int]:
    return editor.page.evaluate("polydraft.editor.parts.selection")


def select(editor: Editor, start: int, end: int | None = None) -> None:
    """In the part on the screen."""
    editor.box.evaluate(
        "(box, [start, end]) => box.setSelectionRange(start, end)", [start, start if end is None else end]
    )


def part(editor: Editor, text: str) -> None:
    expect(editor.page.locator(".pd-parts [role=status]")).to_have_text(text)


def write(editor: Editor, text: str) -> None:
    """Only the last two letters are typed, because each costs processor time for a request and its answer."""
    editor.page.keyboard.insert_text(text[:-2])
    editor.write(text[-2:])


def turn(editor: Editor, name: str) -> None:
    """A click without the pointer, whose way there takes processor time; it is in the test of the bar."""
    editor.page.locator(f"[data-do={name.lower()}-part]").dispatch_event("click", {"detail": 1})


def paste(editor: Editor, text: str) -> None:
    editor.page.evaluate("text => navigator.clipboard.writeText(text)", text)
    editor.press("Control+v")


def undo(editor: Editor) -> None:
    """What the button of the toast does, which a slow machine may have removed by now."""
    expect(editor.page.locator(".pd-toast button")).to_have_text("Undo")
    editor.page.evaluate("polydraft.editor.notices.undo()")


def whole_ghost(editor: Editor) -> str:
    """The ghost when its draft has stopped growing. Tab takes only what has been shown for a while."""
    editor.wait(lambda: editor.ghost() and not editor.page.evaluate("polydraft.editor.request"), "the whole ghost")
    return editor.ghost()


def stored(folder: DocumentFolder) -> tuple[Entry, str]:
    (entry,) = folder.entries()
    return folder.read(entry.id)


@pytest.fixture
def bare(context: BrowserContext, server: Server) -> Page:
    """A page without the editor, for functions of its scripts."""
    page = context.new_page()
    page.goto(server.url + "/page/icon.svg")
    return page


# ---------------------------------------------------------------- cutting

CUT = """async () => {
    const { cut, LONG } = await import('/page/editor/parts.js');
    let seed = 7;
    const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
    const words = ['a', 'word', 'naïve', '👩‍👩‍👧', '😀', '東京に行きました。', 'mot', 'é'];
    const text = (length, between) => {
        let made = '';
        while (made.length < length) made += words[random(words.length)] + between[random(between.length)];
        return made;
    };
    const paragraph = 'The keeper read it twice. '.repeat(9);
    const texts = [
        [(paragraph + '\\n\\n').repeat(3000), '\\n\\n'],
        [text(900_000, [' ', ' ', ' ', '\\n']), '\\n'],
        [text(900_000, [' ']), ' '],
        [text(900_000, ['']), ''],
        ['x'.repeat(800_000), ''],
        ['😀'.repeat(400_000) + 'x' + '😀'.repeat(300_000), ''],
        ['\\n'.repeat(700_000), '\\n\\n'],
        ['short', null],
        ['', null],
    ];
    return texts.flatMap(([text, gap], n) => {
        let from = 0, joined = '';
        const wrong = [], parts = cut(text);
        parts.forEach(({ length, gap: width }, at) => {
            const part = text.slice(from, from + length), between = text.slice(from + length, from + length + width);
            from += length + width;
            joined += part + between;
            const last = at === parts.length - 1;
            if (between !== (last ? '' : gap)) wrong.push([n, at, 'gap', between]);
            if (!part && text) wrong.push([n, at, 'empty']);
            if (length > LONG) wrong.push([n, at, 'long', length]);
            if (!part.isWellFormed()) wrong.push([n, at, 'half a character']);
            if (/^\\p{M}|^\\u200d/u.test(part)) wrong.push([n, at, 'a part of a character']);
        });
        if (joined !== text) wrong.push([n, 'joined']);
        if (text.length > LONG !== parts.length > 1) wrong.push([n, 'count', parts.length]);
        return wrong;
    });
}"""


def test_parts_joined_are_the_text_and_begin_and_end_with_whole_words(bare: Page) -> None:
    assert bare.evaluate(CUT) == []


# ---------------------------------------------------------------- editing and saving


def test_a_text_edited_in_three_parts_is_saved_whole_once_the_server_is_reached_and_copied_by_a_second_tab(
    editor: Editor, folder: DocumentFolder, tab: Callable[..., Editor]
) -> None:
    keep_as(editor, "files")
    opened(editor)
    saved(editor)
    assert editor.box.evaluate("box => box.value.length") <= MOST
    expect(editor.page.locator(".pd-counts")).to_contain_text(f"{len(TEXT.split()):,} words")
    editor.page.route("**/api/documents/write", lambda route: route.abort())
    write(editor, "One. ")
    turn(editor, "Next")
    part(editor, "Part 2 of 3")
    second = selection(editor)[0]
    write(editor, "Two. ")
    editor.press("Control+End")
    part(editor, "Part 3 of 3")
    write(editor, " End.")
    expected = f"One. {TEXT[: second - 5]}Two. {TEXT[second - 5 :]} End."
    assert whole(editor) == expected
    expect(editor.page.locator(".pd-counts")).to_contain_text(f"{len(TEXT.split()) + 3:,} words")
    editor.page.evaluate("polydraft.documents.saveNow()")
    assert editor.page.evaluate("polydraft.documents.dirty()")
    editor.page.unroute("**/api/documents/write")
    saved(editor)
    assert stored(folder)[1] == expected
    editor.reload()
    part(editor, "Part 3 of 3")
    assert selection(editor) == [len(expected)] * 2
    assert whole(editor) == expected
    assert editor.box.evaluate("box => box.value.length") <= MOST
    other = tab()
    other.page.get_by_role("button", name="Open a copy").click()
    other.wait(lambda: other.page.evaluate("polydraft.editor.parts.length") == len(expected), "the copy")
    assert whole(other) == expected
    assert other.errors == []


def test_keys_and_the_bar_go_from_part_to_part_and_the_bar_keeps_the_place_in_each(editor: Editor) -> None:
    bar = editor.page.get_by_role("navigation", name="Parts of this text")
    expect(bar).to_be_hidden()
    opened(editor)
    expect(bar).to_be_visible()
    assert editor.page.evaluate("polydraft.editor.parts.all.length") == 3
    border = editor.page.evaluate("polydraft.editor.parts.all[0].length")
    for key, back in (("ArrowRight", "ArrowLeft"), ("ArrowDown", "ArrowUp"), ("PageDown", "PageUp")):
        part(editor, "Part 1 of 3")
        select(editor, border)
        editor.press(key)
        part(editor, "Part 2 of 3")
        assert selection(editor) == [border + 2] * 2
        editor.press(back)
        part(editor, "Part 1 of 3")
        assert selection(editor) == [border] * 2
    select(editor, border - 20)
    editor.press("ArrowDown", "ArrowDown")  # to the end of the last line, and on
    part(editor, "Part 2 of 3")
    editor.press("Control+Home")
    part(editor, "Part 1 of 3")
    assert selection(editor) == [0, 0]
    editor.press("ArrowLeft", "ArrowUp", "PageUp")
    part(editor, "Part 1 of 3")
    editor.press("Control+End")
    part(editor, "Part 3 of 3")
    assert selection(editor) == [len(TEXT)] * 2
    editor.press("ArrowRight", "ArrowDown", "PageDown")
    part(editor, "Part 3 of 3")

    editor.press("Control+Home")
    part(editor, "Part 1 of 3")
    select(editor, 5_000)
    editor.press("Shift+Tab", "Enter")
    part(editor, "Part 2 of 3")
    expect(editor.page.get_by_role("button", name="Next part")).to_be_focused()
    editor.press("Enter")
    part(editor, "Part 3 of 3")
    expect(editor.page.get_by_role("button", name="Next part")).to_have_attribute("aria-disabled", "true")
    editor.press("Enter")
    part(editor, "Part 3 of 3")
    editor.page.get_by_role("button", name="Previous part").click()
    expect(editor.box).to_be_focused()  # after a click
    turn(editor, "Previous")
    part(editor, "Part 1 of 3")
    assert selection(editor) == [5_000] * 2
    assert whole(editor) == TEXT


def test_deleting_what_separates_two_parts_joins_their_paragraphs_and_undo_belongs_to_the_part_on_the_screen(
    editor: Editor,
) -> None:
    opened(editor)
    border = editor.page.evaluate("polydraft.editor.parts.all[0].length")
    select(editor, border)
    editor.press("Delete", "Delete")
    expected = TEXT[:border] + TEXT[border + 2 :]
    assert whole(editor) == expected
    assert selection(editor) == [border] * 2
    shown = editor.box.input_value()
    assert shown[border:].startswith("[")
    assert expected.startswith(shown)
    editor.press("Control+z", "Control+z")
    assert whole(editor) == TEXT
    editor.press("Control+End", "Control+Home", "PageUp")
    border = editor.page.evaluate("polydraft.editor.parts.all[0].length")
    select(editor, border)
    editor.press("ArrowRight")
    part(editor, "Part 2 of 3")
    at = selection(editor)[0]
    editor.press("Backspace")
    assert whole(editor) == TEXT[: at - 1] + TEXT[at:]
    assert selection(editor) == [at - 1] * 2
    editor.press("Backspace", "x")
    assert whole(editor) == TEXT[: at - 2] + "x" + TEXT[at:]

    equal = (SENTENCE * 6 + "\n\n") * 1400  # its parts differ little
    opened(editor, equal)
    editor.write("ab")
    turn(editor, "Next")
    changed = "ab" + equal
    for key in ("Control+z", "Control+z", "Control+y"):
        editor.press(key)
        assert whole(editor) == changed
    editor.write("c")
    editor.press("Control+z")
    assert whole(editor) == changed
    turn(editor, "Previous")
    editor.press("Control+z", "Control+y")
    assert whole(editor) == changed


# ---------------------------------------------------------------- find and replace


def find(editor: Editor, what: str) -> None:
    editor.press("Control+f")
    editor.page.get_by_role("textbox", name="Find").fill(what)


def test_find_goes_to_the_part_of_the_match_and_replaces_in_all_parts_which_can_be_undone(editor: Editor) -> None:
    opened(editor)
    find(editor, "[000001]")
    what = editor.page.get_by_role("textbox", name="Find")
    status = editor.page.locator(".fd-matches")
    expect(status).to_have_text("1 of 1")
    last = TEXT.rindex("[00")
    for found, place in ((TEXT[last : last + 8], last), ("[000700]", TEXT.index("[000700]"))):
        what.fill(found)
        expect(status).to_have_text("1 of 1")
        assert selection(editor) == [place, place + 8]
        expect(editor.page.locator(".fd-layer div")).to_have_count(1)
    what.fill("[0")
    for _ in range(3):
        editor.press("Shift+Enter")
    assert selection(editor)[0] == TEXT.index("[000697]")
    other = editor.page.get_by_role("textbox", name="Replace with")
    other.fill("")
    editor.page.get_by_role("button", name="Replace", exact=True).click()
    place = TEXT.index("[000697]")
    text = TEXT[:place] + TEXT[place + 2 :]
    assert whole(editor) == text

    what.fill("keeper")
    other.fill("warden")
    editor.page.get_by_role("button", name="Replace all").click()
    assert whole(editor) == text.replace("keeper", "warden")
    undo(editor)
    assert whole(editor) == text
    saved(editor)
    editor.page.get_by_role("button", name="Replace all").click()
    saved(editor)
    editor.box.focus()
    editor.press("Control+Home")
    part(editor, "Part 1 of 3")
    editor.write("y")
    undo(editor)
    assert whole(editor) == "y" + text.replace("keeper", "warden")


def test_a_match_over_the_border_of_two_parts_is_shown_whole(editor: Editor) -> None:
    one_line = " ".join(f"w{n:05}" for n in range(100_000))
    opened(editor, one_line)
    border = editor.page.evaluate("polydraft.editor.parts.all[0].length")
    what = one_line[border - 3 : border + 4]
    assert " " in what
    find(editor, what)
    start, end = selection(editor)
    assert one_line[start:end] == what
    assert editor.box.evaluate("box => box.value.slice(box.selectionStart, box.selectionEnd)") == what
    assert whole(editor) == one_line


def test_private_ranges_after_replacing_in_all(bare: Page) -> None:
    """Against a second, slow computation: character by character."""
    rng = random.Random(3)
    code = "async (cases) => { const { matches, rangesAfter } = await import('/page/editor/find.js');"
    code += " return cases.map(([t, w, o, r]) => rangesAfter(r, matches(t, w, Infinity),"
    code += " { removed: w.length, inserted: o.length, all: t.length }, false)) }"
    cases: list[tuple[str, str, str, list[list[int]]]] = []
    for _ in range(200):
        text = "".join(rng.choice("ab") for _ in range(rng.randrange(1, 30)))
        ends = sorted(rng.sample(range(len(text) + 1), min(4, len(text) + 1)) if len(text) > 3 else [0, len(text)])
        cases.append(
            (text, rng.choice(["a", "ab", "ba"]), rng.choice(["", "x", "xyz"]), [ends[:2], ends[2:4]][: len(ends) // 2])
        )
    for (text, what, other, ranges), after in zip(cases, bare.evaluate(code, cases), strict=True):
        private = [any(a <= i < b for a, b in ranges) for i in range(len(text))]
        expected: list[bool] = []
        at = 0
        while at < len(text):
            if text.startswith(what, at):
                expected += [any(private[at : at + len(what)])] * len(other)
                at += len(what)
            else:
                expected.append(private[at])
                at += 1
        assert [any(a <= i < b for a, b in after) for i in range(len(expected))] == expected


# ---------------------------------------------------------------- privacy and learning


def incognito(editor: Editor) -> None:
    editor.page.locator(".pd-incognito").dispatch_event("click")
    editor.box.focus()


def private(editor: Editor) -> list[list[int]]:
    return editor.page.evaluate("polydraft.editor.parts.privateRanges")


def test_text_typed_in_incognito_in_another_part_stays_private_where_it_is_saved_and_copied(
    editor: Editor, folder: DocumentFolder
) -> None:
    editor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keep_as(editor, "files")
    opened(editor)
    button = editor.page.get_by_role("button", name="Copy", exact=True)
    button.click()
    expect(editor.page.locator(".pd-toast")).to_contain_text("Copied")
    assert editor.page.evaluate("navigator.clipboard.readText()") == TEXT
    editor.write("a ")
    turn(editor, "Next")
    place = selection(editor)[0]
    incognito(editor)
    write(editor, SECRET)
    incognito(editor)
    turn(editor, "Previous")
    editor.write("b ")
    saved(editor)
    secret = [place + 2, place + 2 + len(SECRET)]
    assert private(editor) == [secret]
    assert [list(range_) for range_ in stored(folder)[0].private] == [secret]
    editor.reload()
    assert private(editor) == [secret]
    editor.box.focus()
    editor.press("Control+Home")
    select(editor, 0)
    editor.press("Control+End")
    turn(editor, "Previous")
    select(editor, 0)
    editor.write("xyz")
    secret = [n + 3 for n in secret]
    assert private(editor) == [secret]
    turn(editor, "Next")
    text = whole(editor)
    button.click()
    expect(editor.page.locator(".pd-toast")).to_contain_text("Copied")
    assert editor.page.evaluate("navigator.clipboard.readText()") == text
    editor.page.get_by_role("button", name="New", exact=True).click()
    expect(editor.box).to_have_value("")
    editor.press("Control+v")
    editor.wait(lambda: editor.page.evaluate("polydraft.editor.parts.length") == len(text), "the paste")
    assert private(editor) == [secret]
    editor.page.evaluate("polydraft.editor.parts.makePublic()")
    assert private(editor) == []


# ---------------------------------------------------------------- drafts


def test_drafts_continue_the_part_before_see_the_part_after_and_are_taken_shown_again_and_learned(
    editor: Editor,
) -> None:
    editor.fake.learning = ["me"]
    opened(editor)
    turn(editor, "Next")
    place = selection(editor)[0]
    editor.fake.requests.clear()
    editor.write("But ")
    editor.wait(lambda: editor.fake.requests and editor.fake.requests[-1]["before"].endswith("But "), "a request")
    before = editor.fake.requests[-1]["before"]
    assert (TEXT[:place] + "But ").endswith(before)
    assert 4096 <= len(before) <= 8192
    assert editor.fake.requests[-1]["after"] == TEXT[place : place + 256]
    end = editor.box.evaluate("box => box.value.length")
    place = editor.page.evaluate("polydraft.editor.parts.offset") + end - 4
    select(editor, end)
    editor.write(" So ")
    editor.wait(lambda: editor.fake.requests[-1]["before"].endswith(" So "), "a request")
    assert editor.fake.requests[-1]["after"] == TEXT[place : place + 256]

    editor.press("Enter")
    write(editor, "A new paragraph.")
    editor.press("Enter")
    editor.wait(lambda: "A new paragraph." in editor.fake.learned, "the paragraph")
    write(editor, "Once upon a time ")
    ghost = whole_ghost(editor)
    text, place = whole(editor), selection(editor)[0]
    editor.press("Tab")
    expected = text[:place] + ghost + text[place:]
    assert whole(editor) == expected
    editor.press("Alt+ArrowLeft")
    assert selection(editor) == [place, place + len(ghost)]
    editor.press("Alt+ArrowRight")
    assert selection(editor) == [place + len(ghost)] * 2
    assert whole(editor) == expected
    turn(editor, "Previous")  # undo is over
    editor.wait(lambda: any(text.endswith(ghost.strip()) for text in editor.fake.learned), "the draft")


# ---------------------------------------------------------------- short to long, and back


def test_much_pasted_text_is_shown_in_parts_until_it_is_removed_again(editor: Editor) -> None:
    editor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    editor.write("before  after")
    select(editor, 7)
    paste(editor, TEXT)
    expected = "before " + TEXT + " after"
    editor.wait(lambda: editor.page.evaluate("polydraft.editor.parts.length") == len(expected), "the paste")
    assert whole(editor) == expected
    assert editor.box.evaluate("box => box.value.length") <= MOST
    assert selection(editor) == [7 + len(TEXT)] * 2
    part(editor, "Part 3 of 3")
    undo(editor)
    assert whole(editor) == "before  after"
    assert selection(editor) == [7, 7]
    expect(editor.page.locator(".pd-parts")).to_be_hidden()
    saved(editor)

    editor.press("Control+v")
    editor.wait(lambda: editor.page.evaluate("polydraft.editor.parts.length") == len(expected), "the paste")
    assert whole(editor) == expected
    editor.press("Control+Home", "Control+a", "Delete")
    part(editor, "Part 1 of 3")
    expect(editor.page.locator(".pd-invite")).to_be_hidden()
    expected = whole(editor)
    editor.press("ArrowDown")  # the writer goes on, and what is left is not long
    expect(editor.page.locator(".pd-parts")).to_be_hidden()
    assert editor.box.input_value() == expected
    assert selection(editor) == [2, 2]
    editor.write("z")
    assert whole(editor) == expected[:2] + "z" + expected[2:]
    saved(editor)
    editor.reload()
    assert editor.box.input_value() == expected[:2] + "z" + expected[2:]


# ---------------------------------------------------------------- what may go wrong


# Compares the page with a mirror of the whole text. An action that moves, or deletes at a border, is repeated in the
# mirror; any other leaves what is outside of the part. Returns what is wrong.
CHECK = """(deleted) => {
    const { parts, textarea } = polydraft.editor, { offset, length } = window.before, text = parts.text;
    const wrong = [];
    if (deleted) window.mirror = mirror.slice(0, deleted[0]) + mirror.slice(deleted[1]);
    if (deleted ? text !== mirror : !text.startsWith(mirror.slice(0, offset))) wrong.push('head');
    if (!deleted && !text.endsWith(mirror.slice(offset + length))) wrong.push('tail');
    if (textarea.textLength > 512_000) wrong.push('too much');
    if (text !== parts.head + textarea.value + parts.tail) wrong.push('joined');
    for (const { index, 0: letters } of text.matchAll(/[α-ω]+/g)) {
        const end = index + letters.length;
        if (!parts.privateRanges.some(([from, to]) => from <= index && end <= to)) wrong.push(letters);
    }
    window.mirror = text;
    return wrong;
}"""
STEPS, SEED = 24, 11
BEFORE = """() => {
    const { parts, textarea } = polydraft.editor;
    window.before = { offset: parts.offset, length: textarea.textLength };
    return [parts.offset, textarea.textLength, parts.length];
}"""


def test_random_edits_lose_no_letter_and_no_private_one_becomes_public(editor: Editor, folder: DocumentFolder) -> None:
    rng = random.Random(SEED)
    editor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keep_as(editor, "files")
    opened(editor)
    editor.page.evaluate("text => { window.mirror = text }", TEXT)
    secret = False
    for step in range(STEPS):
        offset, length, total = editor.page.evaluate(BEFORE)
        action = rng.choice(
            ["write", "write", "next", "previous", "border", "start", "undo", "cut", "paste", "secret", "much"]
        )
        deleted: list[int] | None = None
        if action == "write":
            select(editor, rng.randrange(length + 1))
            editor.write("μυ" if secret else "ab")
        elif action in ("next", "previous"):
            editor.page.locator(f"[data-do={action}-part]").dispatch_event("click")
            editor.box.focus()
            deleted = [0, 0]
        elif action in ("border", "start"):
            end = action == "border"
            select(editor, length if end else 0)
            key = rng.choice(["ArrowDown", "ArrowRight", "Delete"] if end else ["ArrowUp", "Backspace"])
            at = offset + (length if end else 0)
            editor.press(key)
            editor.page.wait_for_timeout(10)
            keys = {"Delete": [at, min(at + 1, total)], "Backspace": [max(at - 1, 0), at]}
            deleted = keys.get(key, [0, 0])
        elif action == "undo":
            editor.press(rng.choice(["Control+z", "Control+y"]))
        elif action == "cut":
            start = rng.randrange(length + 1)
            select(editor, start, min(length, start + rng.randrange(3000)))
            editor.press("Control+x")
        elif action == "paste":
            editor.press("Control+v")
        elif action == "secret":
            secret = not secret
            incognito(editor)
        else:
            paste(editor, TEXT[: rng.choice([900, 300_000])])
        assert editor.page.evaluate(CHECK, deleted) == [], (step, action)
    if secret:
        incognito(editor)
    expected = whole(editor)
    assert re.search("[α-ω]", expected)
    saved(editor)
    editor.wait(lambda: stored(folder)[1] == expected, "the document")  # in incognito it is kept for the tab alone
