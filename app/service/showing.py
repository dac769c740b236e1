"""Which rows of an answer are worth showing to this writer: `core.time_saved` for requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from app.options.settings import Strict
from app.wire.bounds import Line
from core.options import DRAFTING

if TYPE_CHECKING:
    from core.time_saved import Costs, RowPath

LONGEST_MS = 10_000.0  # of one key, look or taking
MOST_OFFSET = 2.0  # log-odds
INKS = (0.5, 0.2)  # the chances from which on a row has dark and grey ink on the page (drafting.js); below, faint


class Showing(Strict):
    """The writer's speed, and what is on the screen.

    Attributes:
        key_ms, look_ms, take_ms, word_ms: as in `core.time_saved.Costs`; not given: the published means.
        only: whether only the rows that save time will be shown; then drafts grow farther than others, and the choice
            ends them.
        shown: the rows on the screen, each without what has been typed of it. Rows that continue to be shown cost no
            look.
        offset: log-odds that are added to the probabilities, from how many of this writer's rows came true.
    """

    key_ms: float = Field(default=157.0, ge=20, le=LONGEST_MS)
    look_ms: float = Field(default=50.0, ge=0, le=LONGEST_MS)
    take_ms: float = Field(default=700.0, ge=0, le=LONGEST_MS)
    word_ms: float = Field(default=120.0, ge=0, le=LONGEST_MS)
    offset: float = Field(default=0.0, ge=-MOST_OFFSET, le=MOST_OFFSET)
    only: bool = False
    shown: list[Line] = Field(default_factory=list, max_length=int(DRAFTING["k"].high))

    @property
    def costs(self) -> Costs:
        from core.time_saved import Costs

        return Costs(self.key_ms, self.look_ms, self.take_ms, self.word_ms)


def chances_of(paths: list[RowPath], showing: Showing) -> dict[int, float]:
    """For each row by number, the calibrated probability that this writer goes on as it does where it branches."""
    from core.time_saved import branch_chances

    paths = [path.with_offset(showing.offset) for path in paths]
    return {path.id: round(chance, 4) for path, chance in zip(paths, branch_chances(paths), strict=True)}


def ink_of(chance: float) -> int:
    """How dark the ink of a row is: 2 dark, 1 grey, 0 faint."""
    return sum(chance >= least for least in INKS)


def decided(paths: list[RowPath], chances: Mapping[int, float], showing: Showing, sure: float) -> dict[str, Any]:
    """The fields of an event about complete drafts: `pays`, the rows that save time, best first, each up to where it is
    worth showing; and `ghost`, the number of the best row if all are shown: of those with the darkest ink the one that
    saves most time, so that Tab never takes a row that looks less likely than another. None without rows.

    Args:
        chances: of these rows, as the page shows them (`chances_of`).
        sure: the setting *How sure*; at its default a row must be worth the number of looks that saves most time, and
            in proportion at others.
    """
    from core.time_saved import LOOKS, expected_ms, rows_that_pay

    paths = [path.with_offset(showing.offset) for path in paths]
    costs, looks = showing.costs, LOOKS * sure / float(DRAFTING["end_below"].default)
    pays = [
        {"id": row.id, "text": row.text, "chance": round(row.chance, 4), "saved_ms": round(row.saved_ms, 1)}
        for row in rows_that_pay(paths, costs, showing.shown, looks).rows
    ]

    def rank(path: RowPath) -> tuple[float, ...]:
        chance = chances[path.id]
        return ink_of(chance), expected_ms(path, costs), chance, -path.id

    best = max(paths, key=rank, default=None)
    return {"pays": pays, "ghost": None if best is None else best.id}
