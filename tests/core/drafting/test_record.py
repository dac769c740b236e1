"""What a request is told of each token is what the model, the stores and the weights of the mixture say."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from core import completing
from core.ask import KeptRow
from core.autocomplete import Autocomplete
from core.drafting.drafts import Drafts, Options
from core.drafting.driver import Driven
from core.drafting.record import Made, Record
from core.models import LanguageModel
from core.models.base import Row
from core.models.costs import CostCurve
from core.modes.speculated import Speculation, Speculator
from core.modes.start import Mode, start
from core.ngram.counts import Counts
from core.ngram.interpolation import WHOLE, Geometric, Linear, Mixed
from core.samplers import TopK
from core.speculative.calibration import Calibration, Constants, fingerprint
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.options import SpeculationOptions
from core.speculative.tree import TokenTree
from tests.completing import complete, completed
from tests.table_model import TableModel, chain

PREFIX = [3, 1, 4, 1, 5]
TABLE = TableModel(vocabulary=64, seed=1)
TOLERANCE = 2e-3  # the same token in a batch and alone, in the default model's 8-bit arithmetic


class Guess(Drafter):
    """Proposes the tokens with this rank in the table."""

    name = "guess"

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        path: list[int] = []
        for _ in range(min(depth, 3)):
            path.append(int(TABLE.after([*moment.ids, *path]).argsort(descending=True)[self.rank]))
        return chain(path, [0.9] * len(path))


SPECULATION = Speculation(Speculator(Guess(0), lambda n: 1 + n / 50), SpeculationOptions(tree_size=4))
ANYTHING = Calibration(fingerprint(TABLE), "table", np.ones(4), Constants(1e-9, 1e-9, 1.0))
TOLERANT = Speculation(
    Speculator(Guess(1), lambda n: 1 + n / 50), SpeculationOptions("arc", tree_size=4, calibration=ANYTHING)
)


def drafted(
    model: LanguageModel, prefix: list[int], mode: Mode | str = "superposed", verify: int = 0, **options: Any
) -> tuple[Drafts, list[list[Made]]]:
    """The drafts, and how the tokens of each were made."""
    record, how = Record(len(prefix)), mode if isinstance(mode, Mode) else Mode(mode)
    asked = Options(**{"k": 3, "length": 6, "stop_ids": frozenset(), **options})
    with closing(model.open()) as sequence:
        begin = start(sequence, prefix, asked, how, verify=verify, record=record)
        drafts = Driven(begin([sequence.sync(prefix)])).finish(model)
    return drafts, [[record.made(draft, n) for n in range(len(draft.ids))] for draft in drafts.drafts]


def logprobs(model: LanguageModel, ids: list[int]) -> list[float]:
    """ln p of each token of a draft after the prefix, by one pass over its own text."""
    with closing(model.open()) as sequence:
        (after,) = model.forward([Row(sequence, PREFIX + ids, every=True)])
        at = torch.arange(len(ids))
        return after.float()[at + len(PREFIX) - 1].log_softmax(1)[at, torch.tensor(ids)].tolist()


def tokens(drafts: Drafts, made: list[list[Made]]) -> list[tuple[list[int], int, Made]]:
    """Each token with the draft's own tokens before it."""
    return [
        (draft.ids[:n], draft.ids[n], each)
        for draft, of_draft in zip(drafts.drafts, made, strict=True)
        for n, each in enumerate(of_draft)
    ]


def store(*passages: list[int]) -> Counts:
    return Counts.of(64, [(ids, 1) for ids in passages])


MODES: dict[str, dict[str, Any]] = {
    "exact": {"exact_steps": 6},
    "forks": {"forks": 2, "exact_steps": 2, "k": 4},
    "branching": {"mode": "branching"},
    "greedy": {"mode": "greedy"},
    "beam": {"mode": "beam"},
    "sampled": {"mode": "sampled", "tau": 0.8, "rule": TopK(5)},
    "sampled, then superposed": {"mode": Mode("sampled+superposed", samples=2, sampled_tokens=3)},
    "the paper's": {"distinct": False, "forks": 0, "exact_steps": 1},
    "resets": {"distinct": False, "forks": 0, "exact_steps": 6, "reset_every": 2},
    "checked": {"forks": 0, "exact_steps": 0, "verify": 12},
}


# Not the greedy mode with the table, which forgets the embeddings that it has read, but for the last.
MODELS = [("table", name) for name in MODES if name != "greedy"]
MODELS += [("tiny", name) for name in MODES] + [("default", name) for name in ("exact", "sampled")]


@pytest.mark.parametrize(("model_name", "name"), MODELS)
def test_an_exact_token_has_the_probability_of_a_pass_of_its_own(
    request: pytest.FixtureRequest, model_name: str, name: str
) -> None:
    made_by = {"table": lambda: TABLE, "tiny": lambda: request.getfixturevalue("tiny_llama")}
    model = made_by.get(model_name, lambda: request.getfixturevalue("autocomplete").model)()
    drafts, made = drafted(model, PREFIX, **MODES[name])
    exact = 0
    for draft, of_draft in zip(drafts.drafts, made, strict=True):
        for each, alone in zip(of_draft, logprobs(model, draft.ids), strict=True):
            assert each.ln_stores is None
            if each.by in ("own", "corrected"):
                assert each.ln_model == pytest.approx(alone, abs=TOLERANCE)
                exact += 1
    assert exact


@pytest.mark.parametrize("name", ["greedy", "sampled"])
@pytest.mark.parametrize("speculation", [SPECULATION, TOLERANT], ids=["lossless", "arc"])
def test_a_speculated_token_too(name: str, speculation: Speculation) -> None:
    drafts, made = drafted(TABLE, PREFIX, Mode(name, speculation=speculation), length=12)
    came = {how for draft in drafts.drafts for how, _ in draft.how}
    assert "tolerated" in came or speculation is SPECULATION
    for draft, of_draft in zip(drafts.drafts, made, strict=True):
        assert [each.ln_model for each in of_draft] == pytest.approx(logprobs(TABLE, draft.ids), abs=1e-5)
        steps = np.diff(draft.totals, prepend=0.0).tolist()
        assert [each.ln_mixture for each in of_draft] == pytest.approx(steps, abs=1e-5)


@pytest.mark.parametrize(("mode", "options", "own"), [
    ("superposed", {"forks": 0, "exact_steps": 6}, 6),
    ("superposed", {"forks": 0, "exact_steps": 0}, 1),
    ("greedy", {}, 6),
])  # fmt: skip
def test_tokens_after_the_exact_steps_are_superposed_and_the_only_draft_has_none(
    mode: str, options: dict[str, Any], own: int
) -> None:
    _, made = drafted(TABLE, PREFIX, mode, **options)
    for of_draft in made:
        assert [each.by for each in of_draft] == ["own"] * own + ["superposed"] * (6 - own)
        assert [each.gamma is None for each in of_draft] == [True] * own + [False] * (6 - own)


@pytest.mark.parametrize("exact_steps", [0, 2])
def test_the_weights_of_a_step_are_eq_4_and_sum_to_1(exact_steps: int) -> None:
    drafts, made = drafted(TABLE, PREFIX, k=5, forks=0, exact_steps=exact_steps)
    for n in range(exact_steps + 1, 6):
        p = np.exp([draft.totals[n - 1] for draft in drafts.drafts])
        gamma = [of_draft[n].gamma for of_draft in made]
        assert gamma == pytest.approx((p / p.sum()).tolist())
        assert sum(each or 0 for each in gamma) == pytest.approx(1)


def test_the_weights_stay_with_their_drafts_where_these_are_sorted_by_score() -> None:
    """The paper's drafts share beginnings, so their parents' weights are at most 1 together."""
    drafts, made = drafted(TABLE, PREFIX, k=4, distinct=False, forks=0, exact_steps=0)
    for n in range(1, 6):
        parents = {tuple(d.ids[:n]): of_draft[n].gamma for d, of_draft in zip(drafts.drafts, made, strict=True)}
        weights = [gamma for gamma in parents.values() if gamma is not None]
        assert len(weights) == len(parents)
        assert 0 < sum(weights) <= 1 + 1e-9


def test_the_mixture_is_that_of_the_model_and_the_stores() -> None:
    base, own = store(*[[5, n, n + 1, n + 2] for n in range(40)]), store([1, 5, 7, 8], [1, 5, 7, 9])
    rule = Linear([Mixed(base), Mixed(own, 0.8, personal=True)])
    drafts, made = drafted(TABLE, PREFIX, k=6, exact_steps=6, ngrams=rule)
    seen = 0
    for before, token, each in tokens(drafts, made):
        context = PREFIX + before
        logq = TABLE.after(context).double().log_softmax(0).numpy()[None]
        mixture = rule.after(PREFIX).scores(logq, [context], list(range(64)))[0]
        assert each.ln_mixture == pytest.approx(mixture[token], abs=1e-6)
        stores, weight = rule.after(PREFIX).alone([context], list(range(64)))
        share = float(weight[0, 0])
        p_stores = 0.0 if each.ln_stores is None else np.exp(each.ln_stores)
        assert p_stores == pytest.approx(np.exp(stores[0, token]))
        assert each.ln_model is not None
        assert (1 - share) * np.exp(each.ln_model) + share * p_stores == pytest.approx(np.exp(mixture[token]))
        if share > 1e-9:
            assert np.exp(stores).sum() == pytest.approx(1), "it is a distribution"
            seen += 1
    assert seen


def test_the_geometric_stores_are_those_of_eq_5() -> None:
    rule = Geometric(store([1, 5, 7, 8], [1, 5, 7, 9]))
    stores, weight = rule.alone([PREFIX], [7, 8])
    assert np.exp(stores) == pytest.approx(rule.probabilities([PREFIX], [7, 8]))
    assert weight.tolist() == [[rule.alpha]]


@pytest.mark.parametrize("personal", [False, True])
def test_a_token_that_a_store_brought_names_the_store(personal: bool) -> None:
    rare = int(TABLE.after(PREFIX).argmin())
    rule = Linear([Mixed(store(*[[4, 1, 5, rare]] * 50), 0.9, WHOLE, personal=personal)])
    drafts, made = drafted(TABLE, PREFIX, k=1, forks=0, ngrams=rule)
    assert drafts.ids[0][0] == rare
    assert (made[0][0].by, made[0][0].store) == ("store", "personal" if personal else "base")
    assert made[0][1].store is None


def test_a_token_that_the_model_prefers_too_is_no_stores() -> None:
    likely = int(TABLE.after(PREFIX).argmax())
    rule = Linear([Mixed(store([4, 1, 5, likely], [4, 1, 5, likely]), 0.1)])
    drafts, made = drafted(TABLE, PREFIX, k=1, forks=0, ngrams=rule)
    assert drafts.ids[0][0] == likely
    assert (made[0][0].by, made[0][0].store) == ("own", None)
    assert made[0][0].ln_stores == pytest.approx(0, abs=1e-6), "the store knows this token alone"


@pytest.mark.parametrize("name", ["superposed", "greedy", "sampled", "beam"])
def test_what_a_rule_keeps_is_counted(name: str) -> None:
    for rule, kept in ((TopK(7), 7), (None, None)):
        _, made = drafted(TABLE, PREFIX, name, k=2, rule=rule)
        assert {each.kept for of_draft in made for each in of_draft} == {kept}


# --- requests


REQUESTS: dict[str, dict[str, Any]] = {
    "superposed": {},
    "paper": {"distinct": False, "forks": 0, "exact_steps": 0, "mixing": "geometric"},
    "checked": {"verify": 12, "exact_steps": 0, "forks": 0},
    "tails": {"tails": True, "exact_steps": 0},
    "alike": {"merge_alike": True, "k": 5},
    "resets": {"reset_every": 3, "one_line": False, "length": 9},
    "greedy": {"mode": Mode("greedy")},
    "branching": {"mode": Mode("branching")},
    "beam": {"mode": Mode("beam")},
    "sampled": {"mode": Mode("sampled"), "rule": TopK(5)},
    "sampled+superposed": {"mode": Mode("sampled+superposed", samples=2)},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_drafts_are_the_same_without_it(tiny_autocomplete: Autocomplete, name: str) -> None:
    autocomplete = tiny_autocomplete
    options = {"k": 3, "length": 5} | REQUESTS[name]
    plain, explained = (completed(autocomplete, "I am writ", explain=on, **options) for on in (False, True))
    assert [replace(draft, made=()) for draft in explained.drafts] == plain.drafts
    assert plain.explained is None
    assert not any(draft.made for draft in plain.drafts)
    assert explained.drafts
    for draft in explained.drafts:
        assert "".join(draft.text[a:b] for a, b, _ in draft.made) == draft.text
        assert all(made.ln_model is not None and made.ln_mixture is not None for _, _, made in draft.made)


def test_the_drafts_of_the_page_are_the_same_without_it(autocomplete: Autocomplete) -> None:
    options = {"k": 3, "length": 5, "corrects": True, "merge_alike": True, "end_below": 0.3, "min_branch": 0.01}
    plain, explained = (completed(autocomplete, "We wnat to", explain=on, **options) for on in (False, True))
    assert [replace(draft, made=()) for draft in explained.drafts] == plain.drafts


@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_speculated_drafts_are_the_same_and_say_how_each_token_came(name: str) -> None:
    autocomplete = Autocomplete(TABLE)
    options = {"mode": Mode(name, speculation=SPECULATION), "heal": False, "k": 2, "length": 9}
    plain, explained = (completed(autocomplete, "abca", explain=on, **options) for on in (False, True))
    assert [replace(draft, made=()) for draft in explained.drafts] == plain.drafts
    for draft in explained.drafts:
        how = [(a, b, "own" if name == "plain" else name) for a, b, name, _ in draft.how if b <= len(draft.text)]
        assert [(a, b, made.by) for a, b, made in draft.made] == how
    assert "accepted" in {made.by for draft in explained.drafts for _, _, made in draft.made}


def test_without_the_flag_nothing_is_recorded(autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(completing, "Record", refuse)
    monkeypatch.setattr(completing, "explain_cost", refuse)
    assert completed(autocomplete, "I am writ", k=3, length=5).drafts
    with pytest.raises(AssertionError):
        completed(autocomplete, "I am writ", k=3, length=5, explain=True)


@pytest.mark.parametrize(("text", "healed"), [("I am writ", True), ("The weather is", False), ("Once upon a ", True)])
def test_the_first_token_of_a_half_typed_word_completes_it(autocomplete: Autocomplete, text: str, healed: bool) -> None:
    for draft in completed(autocomplete, text, k=3, length=5, explain=True).drafts:
        first, *others = [made.by for _, _, made in draft.made]
        assert (first == "healing") == healed
        assert "healing" not in others


def test_a_token_of_an_earlier_request_is_kept_and_the_next_ones_are_not(autocomplete: Autocomplete) -> None:
    kept = KeptRow(1, " blue", chosen=True)
    drafts = completed(autocomplete, "Thank you for your", k=3, length=5, kept=[kept], explain=True).drafts
    made = {draft.id: [each for _, _, each in draft.made] for draft in drafts}
    assert made[1][0] == Made("kept")
    assert "kept" not in {each.by for each in [*made[1][1:], *made[0]]}
    assert all(each.ln_model is not None for each in made[1][1:])


def test_passes_and_rows_are_counted_and_timed(autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = rows = 0
    with closing(autocomplete.open()) as session:
        running = complete(session, "The weather is", k=3, length=5, explain=True)
        while not running.done:
            passes, rows = passes + 1, rows + len(running.rows())
            running.advance(autocomplete.model.forward(running.rows()))
        monkeypatch.setattr(autocomplete, "row_costs", CostCurve((1, 2), (7.0, 8.0)))
        again = complete(session, "The weather is", k=3, length=5, explain=True).finish()
    explained = running.explained
    assert (explained.passes, explained.rows) == (passes, rows)
    assert explained.ms > 0
    assert again.explained is not None
    assert again.explained.passes < passes, "the text was read already"
    later = sum(len(draft.made) - 1 for draft in again.drafts)
    assert again.explained.apart_ms == pytest.approx(7.0 * later, abs=0.01)


def test_a_cost_that_was_not_measured_is_not_guessed(own_folders: object) -> None:
    explained = completed(Autocomplete(TABLE), "abca", k=2, length=4, explain=True).explained
    assert explained is not None
    assert explained.apart_ms is None
