"""Documents with their names and kinds, and places in them."""

from __future__ import annotations

import json
from pathlib import Path

from research import texts as text
from research.texts import named


def test_the_text_of_our_own() -> None:
    texts = text.load()
    assert 9_000 < sum(len(document) for file in texts for document in file) < 16_000
    places = text.words(texts, 250)
    assert len(places) == 250 == len({(place.document, place.at) for place in places})
    for place in places:
        assert len(place.word) >= 5
        assert place.document[place.at :].startswith(place.word)
        assert place.document[: place.at].endswith(place.before)
    assert places == text.words(texts, 250)


def test_every_file_has_the_same_say() -> None:
    many, one = ["Now then, " + "short " * 100] * 50, ["Now then, " + "long-lived things " * 500]
    chosen = [place.word for place in text.words([many, one], 40)]
    assert chosen.count("short") == chosen.count("things") == 20


def test_names_are_those_of_lines_or_paths_and_kinds_those_of_subfolders_or_files(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "may.txt").write_text("Dear all")
    line = {"text": "Call me", "meta": {"name": "herman/whale"}}
    (tmp_path / "book-00000.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({"text": "No name", "meta": 3}))
    found = {each.text: (each.kind, each.name) for each in named([tmp_path])}
    assert found == {
        "Call me": ("book", "herman/whale"),
        "No name": ("book", "book-00000.jsonl"),
        "Dear all": ("letters", "letters/may.txt"),
    }
