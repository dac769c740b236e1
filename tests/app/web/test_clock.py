"""The clock set back and forward by a day: what is stored and looked up does not depend on it."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.ngram import stored_texts
from core.ngram.shelf import Shelf
from tests.ngram_tools import WordTokenizer

TOKENIZER: Any = WordTokenizer()
DAYS = [1, -1, -2, 1]


class Clock:
    """The time of the system, set by days; files that are written get it too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.days = 0
        now = time.time

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + timedelta(days=self.days)

        monkeypatch.setattr(stored_texts, "datetime", Shifted)
        monkeypatch.setattr(time, "time", lambda: now() + 86400 * self.days)

    def set(self, days: int, *folders: Path) -> None:
        """Sets the clock, and the times of files just written, which the system's own clock gave."""
        self.days = days
        for path in folders:
            os.utime(path, (time.time(), time.time()))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_is_added_counts_at_once_and_stays_in_the_order_in_which_it_came(tmp_path: Path, clock: Clock) -> None:
    shelf, stores = Shelf(TOKENIZER, tmp_path), Shelf(TOKENIZER, tmp_path)
    for at, days in enumerate(DAYS):
        clock.set(days)
        with stores.open("me", create=True) as writer:
            writer.add(f"{at}", [f"{at} 9 9 9"])
            clock.set(days, *tmp_path.iterdir(), tmp_path)
            (reader,) = shelf.active()
            assert reader.evidence([[at]], [9], [2]).totals.tolist() == [[8]]
            writer.forget_phrase("9 9 9")
            assert reader.evidence([[at]], [9], [2]).totals.tolist() == [[0]]
    summary = reader.summary()
    assert [document["origin"] for document in summary["documents"]] == ["0", "1", "2", "3"], "not by their dates"
    assert len({document["added"] for document in summary["documents"]}) > 2
    assert [ids.tolist() for ids in reader.token_ids()[1]] == [[0], [1], [2], [3]], "so the newest text is held out"
    shelf.close()


def test_a_store_created_under_another_clock_is_seen(tmp_path: Path, clock: Clock) -> None:
    shelf, stores = Shelf(TOKENIZER, tmp_path), Shelf(TOKENIZER, tmp_path)
    for at, days in enumerate(DAYS):
        stores.open(f"{at}", create=True).close()
        clock.set(days, tmp_path)
        assert len(shelf.active()) == at + 1
    shelf.close()
