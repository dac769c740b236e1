"""Which drafts are worth showing: those that save the writer time.

A row costs time to read, and taking it costs time, so keys saved are not time saved. This module chooses, of the rows
of one answer, the ones to show, where each of them ends, their order, and the ghost, by the expected time saved:

    E(shown rows) = Σ P(outcome) · max(0, gain of the best right taking) - look_ms · newly shown rows

An *outcome* is how far the writer's text agrees with the rows. Rows overlap: a word that several rows begin with counts
once, and the writer takes one row at most. A *cut* is the end of a word, and every row is shown up to one cut. It is
right if the writer's text agrees up to there and the word ends there too. Its *chance* is the probability of that:
p of the draft up to there.

    gain of taking a row to its cut            = characters · key_ms - take_ms
    gain of taking the first m cuts within it  = characters · key_ms - take_ms - (m - 1) · word_ms

A row that corrects a slip replaces typed letters, so taking it also saves the backspaces that delete them: they count
as characters. Its words are not those of other rows, also where they begin with the same letters.

With a single row, a cut without words one by one, and nothing on the screen, the rule is: show it if
P(cut) · (characters · key_ms - take_ms) exceeds look_ms. If no row pays, nothing is shown. With look_ms = 0 and
key_ms = take_ms = word_ms = 1 the time saved is the number of keys saved.

Suggestions that are shown more readily save more actions and cost time: Quinn and Zhai, "A Cost-Benefit Study of Text
Entry Suggestion Interaction" (CHI 2016); very accurate ones do not make desktop typists faster: Roy et al., "Typing
Efficiency and Suggestion Accuracy Influence the Benefits and Adoption of Word Suggestions" (CHI 2021); two thirds of
the looks at suggestions end without a pick: Li and Feit (2025); a delay that follows the writer's pauses raises the
share of accepted suggestions from 5 to 19 %: arXiv 2511.18842.

The cuts of the rows form a tree, in which a cut's parent is the longest other cut within it. On it the choice is exact,
by dynamic programming. Pure functions: no model, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from core.ends import is_end
from core.errors import InputError
from core.present import TextDraft


@dataclass(frozen=True)
class Costs:
    """The times of one writer, in ms. The defaults are the published means, for writers of whom nothing is known.

    Attributes:
        key_ms: mean time between two keys. 157: desktop typists, 76 words a minute (Roy et al. 2021).
        look_ms: to read a newly shown row. 50: a wrong inline suggestion.
        take_ms: to decide on a row and take it, with its key. Published decisions take 400 to 1100 ms.
        word_ms: for each further word, if a row is taken word by word. None: rows are taken whole.
    Raises: InputError for a time out of range.
    """

    key_ms: float = 157.0
    look_ms: float = 50.0
    take_ms: float = 700.0
    word_ms: float | None = 120.0

    def __post_init__(self) -> None:
        if not 0 < self.key_ms < math.inf:
            raise InputError(f"{self.key_ms} ms between keys given; a time above 0 expected.")
        for name in ("look_ms", "take_ms", "word_ms"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"{value} given as {name}; a time in ms, 0 or more, expected.")


# The number of looks that a new row must be worth, fitted by the time saved (`polydraft eval time --part validation`).
# Above 1 it waits: a row that is not yet worth it is often shown a key later, when it is surer, or was wrong and nobody
# had to read it.
LOOKS = 1.5
# `end_below` of drafts of which only rows that save time are shown: they grow farther, and the choice ends them.
END_BELOW = 0.1


@dataclass(frozen=True)
class Cut:
    """The end of a word of a row: its place in the row's text, in characters, and ln of its chance."""

    end: int
    log_chance: float


@dataclass(frozen=True)
class RowPath:
    """A row that may be shown.

    Attributes:
        id: the row's number.
        text: after the caret.
        cuts: where the row may end, ascending.
        replace: the number of typed letters before the caret that the text replaces; see `TextDraft`.
    Raises: InputError for cuts that are not ascending, are outside the text or inside a word, or have a positive ln p.
    """

    id: int
    text: str
    cuts: tuple[Cut, ...]
    replace: int = 0

    def __post_init__(self) -> None:
        ends = [0, *(cut.end for cut in self.cuts)]
        if ends != sorted(set(ends)) or ends[-1] > len(self.text):
            raise InputError(f"Cuts at {ends[1:]} of {self.text!r} given; ascending places within the text expected.")
        if any(not is_end(self.text, cut.end) for cut in self.cuts):
            raise InputError(f"Cuts at {ends[1:]} of {self.text!r} given; ends of words expected.")
        if any(not cut.log_chance <= 0 for cut in self.cuts):
            raise InputError(f"Cuts {self.cuts} given; ln p of 0 or less expected.")

    @classmethod
    def of(cls, draft: TextDraft) -> RowPath:
        """The row of a draft, with a cut at each token that ends a word in its text. The draft's own end is one too,
        if a token ends there."""
        text = draft.text
        cuts: dict[int, float] = {}  # a token without text ends where the one before it does
        for end, logprob in draft.path:
            if 0 < end <= len(text) and is_end(text, end):
                cuts[end] = min(logprob, 0.0)
        return cls(draft.id, draft.text, tuple(Cut(end, cuts[end]) for end in sorted(cuts)), draft.replace)

    def with_offset(self, offset: float) -> RowPath:
        """The same row for a writer with this offset of log-odds (`with_offset`)."""
        return replace(self, cuts=tuple(Cut(cut.end, with_offset(cut.log_chance, offset)) for cut in self.cuts))


def with_offset(logprob: float, offset: float) -> float:
    """Returns ln p after log-odds of `offset` are added: ln σ(logit p + offset). A writer's own offset follows from how
    many of the rows that were shown came true."""
    if offset == 0 or logprob in (0.0, -math.inf):
        return logprob
    logit = logprob - math.log(-math.expm1(logprob))
    return -math.log1p(math.exp(-logit - offset))


@dataclass(frozen=True)
class PayingRow:
    """A row to show.

    Attributes:
        id: its number.
        text: up to its cut.
        chance: that it is right.
        saved_ms: the expected time that it adds to that of the rows before it, before its look.
        new: whether it costs a look.
    """

    id: int
    text: str
    chance: float
    saved_ms: float
    new: bool


@dataclass(frozen=True)
class PayingRows:
    """The rows to show, best first. The first one saves most alone and is the ghost, which Tab takes; each other one
    adds most to those before it.

    Attributes:
        saved_ms: expected time saved by all of them, less the looks at the new ones.
    """

    rows: tuple[PayingRow, ...] = ()
    saved_ms: float = 0.0


def rows_that_pay(rows: Sequence[RowPath], costs: Costs, shown: Iterable[str] = (), looks: float = LOOKS) -> PayingRows:
    """Returns the choice with the most expected time saved (see the module), if a look counts `looks` times.
    Of equal choices it is one with fewer rows.

    Args:
        rows: the candidates. Where several could show the same words, the first ones do.
        shown: the texts that are on the screen, without what has been typed of them. Their beginnings cost no look.
    """
    roots = _tree(rows, tuple(shown), costs.look_ms * looks)
    search = _Search(costs)
    for root in roots:
        search.compute_gains(root)
    chosen = search.best(roots)
    if not chosen:
        return PayingRows()
    assigned = _assign(chosen)
    placed: list[PayingRow] = []
    before, worth, left = [], 0.0, sorted(assigned, key=lambda node: assigned[node])
    while left:
        each = [search.value(roots, [*before, node]) for node in left]
        most = max(each)
        node = left.pop(each.index(most))
        before.append(node)
        row = rows[assigned[node]]
        placed.append(PayingRow(row.id, node.text, node.chance, most - worth, node.new))
        worth = most
    return PayingRows(tuple(placed), worth - costs.look_ms * sum(row.new for row in placed))


def expected_ms(row: RowPath, costs: Costs) -> float:
    """Returns the expected time that a row saves alone if it is shown in full, without the look at it."""
    worth = saved = 0.0
    for m, cut in enumerate(row.cuts):
        whole = cut.end == len(row.text)
        if not whole and costs.word_ms is None:
            continue
        gain = (cut.end + row.replace) * costs.key_ms - costs.take_ms - (0.0 if whole else m * (costs.word_ms or 0.0))
        if gain > saved:
            worth, saved = worth + math.exp(cut.log_chance) * (gain - saved), gain
    return worth


def branch_chances(rows: Sequence[RowPath]) -> list[float]:
    """Returns for each row the chance that it is right up to the end of its first word that begins no other row;
    of all its words if it has none, 0 without words."""
    chances = []
    for i, row in enumerate(rows):
        others = [other.text for j, other in enumerate(rows) if j != i and other.replace == row.replace]
        own = (cut for cut in row.cuts if is_new(row.text[: cut.end], others))
        cut = next(own, row.cuts[-1] if row.cuts else None)
        chances.append(math.exp(cut.log_chance) if cut else 0.0)
    return chances


@dataclass(eq=False)
class _Node:
    """A cut of one or more rows.

    Attributes:
        rows: the numbers of the rows that contain it.
        replace: of its rows.
        gain: of taking a row that ends here, in ms. Below 0 nobody takes it.
        by_word: of taking a longer row word by word up to here; -inf if that is not possible.
        cost: the looks at a row that ends here, as the choice counts them.
        pays: whether a row that ends here pays alone. One that does not is in no best choice, because a row adds less
            to others than it is worth alone.
        useful: whether it or a longer cut pays.
    """

    text: str
    replace: int = 0
    chance: float = 0.0
    rows: list[int] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)
    new: bool = True
    gain: float = 0.0
    by_word: float = -math.inf
    cost: float = 0.0
    pays: bool = False
    useful: bool = False


def _tree(rows: Sequence[RowPath], shown: tuple[str, ...], look_ms: float) -> list[_Node]:
    """Returns the cuts of all rows as trees. If two rows disagree on a chance, it is the higher one. Those of the
    longer cuts that contain a cut are made smaller if their sum exceeds its own."""
    nodes: dict[tuple[int, str], _Node] = {}
    for row in rows:
        for cut in row.cuts:
            text = row.text[: cut.end]
            node = nodes.setdefault((row.replace, text), _Node(text, row.replace))
            node.chance = max(node.chance, math.exp(cut.log_chance))
    roots: list[_Node] = []
    for number, row in enumerate(rows):
        siblings = roots
        for end in range(1, row.cuts[-1].end + 1) if row.cuts else ():
            if (node := nodes.get((row.replace, row.text[:end]))) is not None and word_ends(row.text, end):
                if not node.rows:
                    siblings.append(node)
                node.rows.append(number)
                siblings = node.children
    for node in nodes.values():
        node.new = is_new(node.text, shown)
        node.cost = look_ms if node.new else 0.0
    _share(roots, 1.0)
    return roots


def _share(siblings: Sequence[_Node], chance: float) -> None:
    """Makes the chances of cuts together at most that of the shorter cut within all of them."""
    total = sum(node.chance for node in siblings)
    for node in siblings:
        node.chance *= min(chance / total, 1.0) if total else 1.0
        _share(node.children, node.chance)


class _Search:
    """The best set of cuts, such that each has a row of its own."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[tuple[_Node, float], list[tuple[float, tuple[_Node, ...]]]] = {}

    def compute_gains(self, node: _Node, depth: int = 0, saved: float = 0.0, worth: float = 0.0) -> bool:
        """Computes gains, and which cuts pay alone; returns whether this one or a longer one does.

        Args:
            depth: the number of cuts within this one.
            saved, worth: the best gain of the shorter cuts, word by word, and its expectation.
        """
        c = self._costs
        node.gain = (len(node.text) + node.replace) * c.key_ms - c.take_ms
        if c.word_ms is not None:
            node.by_word = node.gain - depth * c.word_ms
        node.pays = worth + node.chance * (max(saved, node.gain) - saved) > node.cost
        reached = max(saved, node.by_word)
        worth += node.chance * (reached - saved)
        below = [self.compute_gains(child, depth + 1, reached, worth) for child in node.children]
        node.useful = node.pays or any(below)
        return node.useful

    def best(self, roots: Sequence[_Node]) -> tuple[_Node, ...]:
        """Returns the cuts that pay most together; of equal sets one of the smallest."""
        most, chosen = 0.0, ()
        for value, nodes in self._together(roots, 0.0):
            if value > most:
                most, chosen = value, nodes
        return chosen

    def _together(self, siblings: Sequence[_Node], saved: float) -> list[tuple[float, tuple[_Node, ...]]]:
        """Returns, for each number m of cuts, the highest value and its cuts among siblings and below them."""
        best: list[tuple[float, tuple[_Node, ...]]] = [(0.0, ())]
        for node in siblings:
            if node.useful:
                best = _merged(best, self._below(node, saved))
        return best

    def _below(self, node: _Node, saved: float) -> list[tuple[float, tuple[_Node, ...]]]:
        """As `_together`, for a cut and the longer ones that contain it. `saved` is the gain of what is right if the
        text agrees up to the parent."""
        if (known := self._known.get((node, saved))) is not None:
            return known
        best: list[tuple[float, tuple[_Node, ...]]] = [(0.0, ())]
        reached = max(saved, node.by_word)
        here = node.chance * (reached - saved)
        for value, nodes in self._together(node.children, reached)[1:]:
            best.append((here + value, nodes))
        if node.pays:
            reached = max(saved, node.gain)
            here = node.chance * (reached - saved) - node.cost
            for m, (value, nodes) in enumerate(self._together(node.children, reached), 1):
                if m == len(best):
                    best.append((-math.inf, ()))
                if here + value > best[m][0]:
                    best[m] = here + value, (node, *nodes)
        del best[len(node.rows) + 1 :]  # each cut needs a row of its own
        self._known[node, saved] = best
        return best

    def value(self, roots: Sequence[_Node], chosen: Sequence[_Node]) -> float:
        """Returns the expected gain of rows that end at these cuts, in ms, without looks."""

        def below(node: _Node, saved: float) -> float:
            if not any(node is other or _begins(node, other) for other in chosen):
                return 0.0
            reached = max(saved, node.gain if node in chosen else node.by_word)
            return node.chance * (reached - saved) + sum(below(child, reached) for child in node.children)

        return sum(below(root, 0.0) for root in roots)


def _merged(
    left: list[tuple[float, tuple[_Node, ...]]], right: list[tuple[float, tuple[_Node, ...]]]
) -> list[tuple[float, tuple[_Node, ...]]]:
    """Returns the best value and cuts of two disjoint groups, for each number of cuts in both together."""
    best: list[tuple[float, tuple[_Node, ...]]] = [(-math.inf, ())] * (len(left) + len(right) - 1)
    for i, (a, nodes) in enumerate(left):
        for j, (b, more) in enumerate(right):
            if a + b > best[i + j][0]:
                best[i + j] = a + b, (*nodes, *more)
    return best


def _assign(chosen: Iterable[_Node]) -> dict[_Node, int]:
    """Returns a row for each cut, the longest cut first, because fewer rows contain it."""
    taken: dict[_Node, int] = {}
    for node in sorted(chosen, key=lambda node: -len(node.text)):
        taken[node] = next(row for row in node.rows if row not in taken.values())
    return taken


def is_new(text: str, shown: Iterable[str]) -> bool:
    """Whether a text must be read: it is none of the shown ones, and not the first words of one."""
    return not any(text == row or _within(text, row) for row in shown)


def _begins(node: _Node, other: _Node) -> bool:
    """Whether another, longer cut contains this one."""
    return node.replace == other.replace and _within(node.text, other.text)


def _within(beginning: str, text: str) -> bool:
    """Whether a text begins with another, shorter one, and a word ends there."""
    return len(beginning) < len(text) and text.startswith(beginning) and word_ends(text, len(beginning))


def word_ends(text: str, end: int) -> bool:
    """Whether no word of a text continues across a place in it."""
    return not (_in_word(text[end - 1]) and _in_word(text[end : end + 1]))


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in ("'", "’")
