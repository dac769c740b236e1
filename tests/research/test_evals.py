"""The evaluations' arithmetic, and one of each kind run on the sample for a few places."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from app.options.sampling import drafting
from app.options.settings import DraftSettings
from app.options.typist import PASSAGE, Passage, Way, best_move, drafted, passages
from core.autocomplete import Autocomplete
from core.errors import InputError
from core.models.base import common
from core.ngram.counts import Counts
from core.ngram.interpolation import Linear, Mixed
from core.ngram.shelf import interpolation
from core.present import TextDraft
from core.time_saved import Cut, RowPath
from research.evals import tune, tune_paper
from research.evals.drafts import judged, plots, telling
from research.evals.keytype import acceptable, at_best_cut, cases, most_probable
from research.evals.methods import AS_SHIPPED, NUCLEUS_OF_TOP_K, PAPERS, methods
from research.evals.personal import judged as judged_personal
from research.evals.personal import learn_and_test
from research.evals.tails import with_stores
from research.evals.typing import right_words
from research.options import EvalOptions, KS
from research.places import LENGTH, places, texts
from research.plots import DASHES, HUES
from research.plots import lines as line_chart
from research.plots import page as pages
from research.positions import runs
from research.report import Report
from research.scores import Score, half_interval, scored, summary
from tests.ngram_tools import WordTokenizer
from training.texts import load as load_text

runner = CliRunner()


@pytest.fixture(scope="module")
def autocomplete(tiny_autocomplete: Autocomplete) -> Autocomplete:
    """The product on llama.cpp, which has a limited number of sequences: a tiny model, base store."""
    return tiny_autocomplete


def test_a_match_ends_at_the_first_wrong_token() -> None:
    assert common([1, 2, 3], [1, 2, 4, 3]) == 2
    assert common([], [1]) == 0
    assert common([1, 2], [1, 2, 3]) == 2


def test_the_best_draft_counts_and_a_key_is_paid_for_taking_it() -> None:
    score = scored(WordTokenizer(), "book", [[1, 9], [1, 2, 9], [1, 9]], [1, 2, 3], 4.0)
    assert (score.match, score.characters, score.ms) == (2, len("1 2") - 1, 4.0)
    assert score.tokens == pytest.approx((2 + 3 + 2) / 3)
    assert score.duplicates == pytest.approx(1 / 3)
    assert scored(WordTokenizer(), "book", [[9]], [1], 1.0).characters == 0


def test_a_summary_counts_exact_matches_and_says_how_sure_it_is() -> None:
    found = summary([Score("a", n, n, 0.0, float(n)) for n in (0, 1, 2, 3)])
    assert (found["match"], found["exact_1"], found["exact_3"], found["exact_4"]) == (1.5, 0.75, 0.25, 0)
    assert found["match_ci"] == pytest.approx(1.96 * math.sqrt(5 / 3) / 2)
    assert math.isnan(half_interval([1.0]))


@pytest.mark.parametrize(
    ("shown", "rest", "move"),
    [
        ([], " hello", ("character", 1)),
        ([" hello there"], " hello there, you", ("draft", 12)),
        ([" hello you"], " hello there", ("word", 6)),
        ([" no", " hello there x"], " hello there", ("word", 6)),  # of any draft, for one key
        ([" end. And"], " end, however", ("word", 4)),  # without the punctuation after it
        ([". And"], ". But", ("character", 1)),
        ([" a"], " a", ("draft", 2)),
        (["x"], "y", ("character", 1)),
        ([" hel"], " hello", ("draft", 4)),  # a whole draft may end inside a word
    ],
)
def test_the_typist_makes_the_move_that_writes_most(shown: list[str], rest: str, move: tuple[str, int]) -> None:
    assert best_move(shown, rest) == move


def test_a_passage_is_measured_as_chai_tea_does(autocomplete: Autocomplete) -> None:
    """Nothing right: every word is typed. Everything right: one acceptance for the whole passage."""
    from research.evals import typing

    passage = Passage("a", "It was", " a dark night")
    way = Way("", DraftSettings(k=1))
    for text, saved in ((" nothing", 0.0), (" a dark night", (13 - 1) / 12), (" a dark day", (7 - 1) / 12)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(typing, "drafted", lambda *_, text=text: [TextDraft(0, text, 1.0, 1.0, False)])
            assert typing.chai_tea(autocomplete, passage, way) == pytest.approx(saved)


def test_right_words_end_at_words() -> None:
    assert right_words(" a dark day", " a dark night") == len(" a dark")
    assert right_words(" dark", " darkness") == 0
    assert right_words(" dark.", " dark, and") == 0


@pytest.mark.parametrize(
    ("shown", "good"),
    [
        ("will reply with", True),
        ("will reply with what the terminal", True),  # goes on where the acceptable text ends
        ("will rep", False),  # ends inside a word
        ("will reply,", True),  # closing punctuation aside
        ("  will   reply ", True),
        ("may reply", False),
        ("", False),
        ("(", False),
    ],
)
def test_keytype_accepts_what_its_rules_accept(shown: str, good: bool) -> None:
    assert acceptable(shown, ["will reply with what the"]) is good


def test_the_best_cut_of_any_draft_counts() -> None:
    assert at_best_cut(["no", "will reply at once"], ["will reply with what the"])
    assert not at_best_cut(["no", "may reply"], ["will reply with what the"])


def test_keytype_shows_the_most_probable_words_of_all_drafts() -> None:
    rows = [RowPath(0, " a b", (Cut(2, -0.5), Cut(4, -0.6))), RowPath(1, " c d", (Cut(2, -0.3), Cut(4, -0.3)))]
    assert most_probable(rows) == (" c d", pytest.approx(math.exp(-0.3)))
    assert most_probable([]) == ("", 0)


def test_keytype_cases_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    for path in (tmp_path / "bad.jsonl", tmp_path / "none.jsonl"):
        with pytest.raises(InputError, match=r"core\.jsonl"):
            cases(path)


def test_keytype_cases_from_other_text_have_the_forms_of_the_benchmark(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Once upon a time there were nine words between commas and more. " * 20)
    forms = {(bool(case.after), bool(case.acceptable)) for case in cases(tmp_path / "text.txt")}
    assert forms == {(False, True), (True, True), (True, False)}
    for case in cases(tmp_path / "text.txt"):
        if case.after and case.acceptable:
            assert " ".join((*case.acceptable, case.after)).startswith(case.acceptable[0])
            assert case.before + case.acceptable[0] + " " + case.after[:20] in (tmp_path / "text.txt").read_text()


def test_passages_are_taken_in_turns_and_begin_before_a_word() -> None:
    by_kind = {"a": ["word " * 400], "b": ["text " * 400, "more " * 300]}
    found = passages(by_kind, 500)
    assert [passage.kind for passage in found] == ["a", "b"] * 2
    assert all(passage.rest.startswith(" ") for passage in found)
    assert len({(p.kind, p.before, p.rest) for p in found}) >= 2


def test_some_passages_begin_where_a_document_or_a_line_does() -> None:
    text = "\n\n".join(f"Paragraph {n} has some words. " * 4 for n in range(40))
    found = passages({"a": [text]}, 12 * PASSAGE)
    assert all(passage.before + passage.rest in text and len(passage.rest) == PASSAGE for passage in found)
    begun = ["document" if not p.before else "line" if p.before.endswith("\n") else "inside" for p in found]
    assert begun == ["inside", "inside", "line", "inside", "inside", "document"] * 2
    assert all(passage.rest.startswith("Paragraph") for passage in found if passage.before.endswith("\n"))


def test_places_are_the_same_each_time_and_in_turns() -> None:
    by_kind = {"a": [" ".join(map(str, range(60)))] * 3, "b": [" ".join(map(str, range(50)))]}
    found = places(WordTokenizer(), by_kind, 4, 8)
    assert [place.kind for place in found] == ["a", "b"] * 4
    assert all(len(place.before) == 8 and len(place.after) == LENGTH for place in found)
    assert all(place.after[0] == place.before[-1] + 1 for place in found)
    assert found == places(WordTokenizer(), by_kind, 4, 8)
    with pytest.raises(InputError, match="too short"):
        places(WordTokenizer(), {"a": ["1 2 3"]}, 4, 8)


def test_settings_are_chosen_on_documents_that_are_not_tested_on(tmp_path: Path) -> None:
    for kind in ("books", "docs"):
        for n in range(5):
            (tmp_path / f"{kind}-{n}.txt").write_text(f"{kind} {n}")
    every, tuned, tested = (texts(tmp_path, part) for part in ("all", "validation", "test"))
    for kind in ("books", "docs"):
        assert not set(tuned[kind]) & set(tested[kind])
        assert {*tuned[kind], *tested[kind]} == set(every[kind])
        assert len(tuned[kind]) >= 2
    with pytest.raises(InputError, match="part 'rest' given; one of all, validation, test expected"):
        texts(tmp_path, "rest")
    with pytest.raises(InputError, match="one document, which has no validation half"):
        texts(tmp_path / "books-0.txt", "validation")


def test_the_search_for_alpha_and_tau_names_the_best_by_both_figures() -> None:
    found = {(0.54, 0.06): [(1, 9.0), (1, 7.0)], (0.3, 0.5): [(2, 6.0), (1, 6.0)], (0.1, 1.0): [(0, 3.0), (1, 4.0)]}
    report = tune_paper.judged(found, "validation")
    best = {row["best"]: (row["alpha"], row["tau"]) for row in report.rows if row["best"]}
    assert best == {"perplexity, as in the paper": (0.1, 1.0), "match": (0.3, 0.5)}
    assert report.targets[0].value == 1.5
    assert (0.54, 0.06) in {*product(tune_paper.ALPHAS, tune_paper.TAUS)}


def test_without_a_past_the_first_half_is_learnt_and_the_second_tested() -> None:
    learnt, tested = learn_and_test(EvalOptions())
    whole = texts(None)
    assert sum(map(len, learnt)) + sum(len(t) for found in tested.values() for t in found) == sum(
        len(t) for found in whole.values() for t in found
    )
    assert not set(learnt) & {t for found in tested.values() for t in found}


def test_targets_compare_with_peers_of_the_same_run() -> None:
    names = ["greedy", "nucleus of top-40", "beam", "branching greedy", "superposed, r=2", "as shipped"]
    results = {
        (name, ngrams, k): [Score("book", 2 if name == "as shipped" else 1, 0, 0.0, 5.0 if ngrams else 10.0)] * 4
        for name in names
        for ngrams in (False, True)
        for k in KS
    }
    targets = {t.name: t for t in judged(results).targets}
    assert targets["as shipped, k=3: match / branching greedy with n-grams"].value == 2
    assert targets["as shipped, k=3: time / branching greedy with n-grams"].value == 1
    assert not targets["as shipped, k=3: time / branching greedy with n-grams"].met
    assert targets["as shipped, k=3: match / beam without n-grams"].met


def test_a_part_of_the_methods_has_rows_and_no_targets() -> None:
    short, full = (Score("book", 1, 0, 0.0, 5.0, perplexity=p, tokens=n) for p, n in ((4.0, 6.0), (8.0, 10.0)))
    report = judged({("as shipped", True, 3): [short] * 4, ("forks=2", True, 3): [full] * 4})
    assert [(row["tokens"], row["perplexity"], row["perplexity_ci"]) for row in report.rows] == [(6, 4, 0), (10, 8, 0)]
    assert not report.targets


def test_a_gain_is_in_percent_of_the_base_store_alone() -> None:
    results = {
        name: [Score("x", match, 0, 0.0, 0.0)] * 3
        for name, match in (("no n-grams", 1), ("base store", 2), ("personal store", 2), ("base and personal", 3))
    }
    target = judged_personal(results).targets[0]
    assert (target.value, target.met) == (50, True)


def test_every_method_gives_k_drafts_and_leaves_the_cache_as_it_was(autocomplete: Autocomplete) -> None:
    model, base = autocomplete.model, autocomplete.ngrams
    prefix = model.tokenizer.encode("The captain looked at the")
    sequence = model.open()
    found = {}
    for method in methods(base, interpolation(base)):
        sequence.sync(prefix)
        drafts = found[method.name, method.ngrams] = method.draft(sequence, prefix, 3, 5)
        lengths = [len(ids) for ids in drafts]
        assert len(drafts) == (1 if method.single else 3) and max(lengths) <= 5
        assert method.name == AS_SHIPPED or set(lengths) == {5}, "only the app's drafts end early"
        assert sequence.inputs[: len(prefix)] == prefix
    for ngrams in (False, True):
        # The same definitions by another road: greedy is the first beginning's branch, and all branches are ours.
        assert found["greedy", ngrams][0] in found["branching greedy", ngrams]
        assert len({ids[0] for ids in found["branching greedy", ngrams]}) == 3
        assert len({tuple(ids) for ids in found["beam", ngrams]}) == 3
    sequence.close()
    for _ in range(3):  # all forks were given back
        model.open().close()


def test_every_method_weighs_the_n_grams_by_the_text_before_the_drafts(
    autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, after, weighed = autocomplete.model, Linear.after, list[list[int]]()

    def recorded(rule: Linear, text: Sequence[int]) -> Linear:
        weighed.append(list(text))
        return after(rule, text)

    monkeypatch.setattr(Linear, "after", recorded)
    prefix = model.tokenizer.encode("The captain looked at the")
    sequence = model.open()
    for method in methods(autocomplete.ngrams, interpolation(autocomplete.ngrams)):
        if method.ngrams and method.name not in PAPERS:  # the paper's own rule does not weigh them
            weighed.clear()
            method.draft(sequence, prefix, 2, 2)
            assert weighed == [prefix], method.name
    sequence.close()


def test_the_tokens_of_a_run_follow_the_text_before_it(autocomplete: Autocomplete) -> None:
    found = runs(autocomplete.model.tokenizer, load_text(), 8)
    assert len(found) > 4
    for before, written in found:
        assert "  " not in autocomplete.model.tokenizer.decode(before[-4:] + written[:4]), "the space stands once"


def test_stopping_drafts_that_can_tell_no_more_changes_no_matching_figure(autocomplete: Autocomplete) -> None:
    """Stopped and whole drafts of every method, from several places, against what really follows there."""
    model, base = autocomplete.model, autocomplete.ngrams
    found = places(model.tokenizer, texts(None), 1, 12)
    whole, stopped = (methods(base, interpolation(base)) for _ in range(2))  # sampling draws alike in both
    sequence = model.open()
    shorter = 0
    for place in found:
        for one, other in zip(whole, stopped, strict=True):
            sequence.sync(place.before)
            full = one.draft(sequence, place.before, 3, LENGTH)
            sequence.sync(place.before)
            part = other.draft(sequence, place.before, 3, LENGTH, telling(other, place.after))
            if one.name != NUCLEUS_OF_TOP_K:  # a stopped one draws less often, so later places see other numbers
                a, b = (scored(model.tokenizer, "", drafts, place.after, 0.0) for drafts in (full, part))
                assert (a.match, a.characters) == (b.match, b.characters), one.name
                assert all(any(ids[: len(p)] == p for p in part) for ids in full), one.name
            shorter += len(part[0]) < LENGTH
    sequence.close()
    assert shorter > len(found)


def test_the_typist_loses_nothing_by_looking_no_further_than_drafts_agree(autocomplete: Autocomplete) -> None:
    way = Way("", DraftSettings(k=5))
    text = "\n\n".join(texts(None)["sample"])
    session = autocomplete.open()
    fewer = 0
    for at in (400, 403, 512):
        rest = text[at : at + 200]
        part = [draft.text for draft in drafted(autocomplete, session, text[:at], way, rest)]
        completion = session.complete(text[:at], options=drafting(way.settings))
        completion.finish()
        whole = [draft.text for draft in completion.drafts]
        assert best_move(part, rest) == best_move(whole, rest)
        fewer += part != whole
    session.close()
    assert fewer


def test_times_and_duplicates_are_those_of_whole_drafts_alone() -> None:
    whole, part = Score("a", 1, 1, 0.5, 10.0), Score("a", 3, 3, math.nan, math.nan)
    found = summary([whole, part])
    assert (found["match"], found["duplicates"], found["ms"]) == (2, 0.5, 10)
    assert math.isnan(summary([part])["ms"])


def test_quality_is_drawn_against_time_one_point_for_each_method() -> None:
    report = Report("eval drafts")
    for k in KS:
        for ngrams in ("no", "yes"):
            for name, ms in (("greedy", 5.0), ("superposed, r=0", 6.0), ("superposed, r=1", 8.0)):
                report.rows.append({"kind": "all", "k": k, "method": name, "ngrams": ngrams, "match": 0.5, "ms": ms})
    inside = {"kind": "inside a word", "k": 3, "method": "forks=3", "ngrams": "yes", "characters": 2.0}
    drawn = ElementTree.fromstring(plots(Report("eval drafts", [*report.rows, inside])))
    marks = [e for e in drawn.iter() if e.get("class") == "mark"]
    in_legends = 2 * len({"greedy", "superposed, r = …"})
    assert len(marks) == len(report.rows) + in_legends
    assert sum(e.get("fill") == "none" for e in marks) == len(report.rows) // 2
    assert {"superposed, r = …", "greedy"} <= {e.text for e in drawn.iter()}


def test_perplexity_is_drawn_against_k() -> None:
    rows = [
        {"kind": "all", "k": k, "method": method.name, "ngrams": "yes", "match": 0.5, "ms": 5.0, "perplexity": 9.0}
        for method in methods(None, None)
        for k in (2, 3, 6)
    ]
    drawn = ElementTree.fromstring(plots(Report("eval drafts", rows)))
    assert "Perplexity of the best of k drafts" in {e.text for e in drawn.iter()}
    assert len([e for e in drawn.iter() if e.get("stroke-width")]) == len({*PAPERS, AS_SHIPPED})


def test_no_two_methods_in_a_chart_look_alike() -> None:
    rows = [
        {"kind": "all", "k": 3, "method": method.name, "ngrams": ngrams, "match": 0.5, "ms": 5.0}
        for method in methods(None, None)
        for ngrams in ("no", "yes")
    ]
    drawn = ElementTree.fromstring(plots(Report("eval drafts", rows)))
    names = [e for e in drawn.iter() if e.get("style")]
    looks = {(e.tag, e.get("stroke")) for e in drawn.iter() if e.get("class") == "mark"}
    assert len(names) == len(looks) > 5
    for count in (len(HUES) + 1, len(HUES) * len(DASHES)):
        curves = ElementTree.fromstring(pages([line_chart("", "x", {str(n): [(0, n), (1, n)] for n in range(count)})]))
        looks = [(e.get("stroke"), e.get("stroke-dasharray")) for e in curves.iter() if e.get("stroke-width")]
        assert len(set(looks)) == count == len(looks)


def test_a_line_of_one_point_is_seen() -> None:
    drawn = ElementTree.fromstring(pages([line_chart("", "x", {"one": [(1, 2)], "many": [(0, 1), (1, 2)]})]))
    assert [e.get("stroke") for e in drawn.iter() if e.get("class") == "mark"] == [HUES[0]]


def test_tails_are_judged_by_the_stores_too() -> None:
    store: Any = Counts.of(9, [([1, 2, 3] * 30, 1)], 3)
    alone = [math.log(0.5), math.log(1e-4)]
    with_store = with_stores(Linear([Mixed(store, 0.9)]), [1, 2, 3], [1, 2], alone)
    assert with_store[1] > math.log(0.1) > alone[1]
    assert with_stores(None, [1, 2, 3], [1, 2], alone) == alone


FEW = {"keytype": 2, "personal": 2, "typing": 4, "time": 2, "tune": 5, "tune-paper": 2}


@pytest.mark.parametrize("name", FEW)
def test_each_evaluation_runs_on_the_sample(name: str, tiny_default: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_paper, "ALPHAS", (0.3, 0.54))
    monkeypatch.setattr(tune_paper, "TAUS", (0.06, 0.5))
    variations = tune.variations
    monkeypatch.setattr(tune, "variations", lambda setting: variations(setting)[::9])
    more = {"keytype": ["--k", "1,3"], "tails": ["--k", "3"], "typing": [], "time": ["--k", "1,3"]}.get(
        name, ["--context", "12"]
    )
    few = ["--prefixes", str(FEW[name]), "--model", str(tiny_default)]
    result = runner.invoke(app, ["eval", name, "--json", *few, *more])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["name"] == f"eval {name}"
    assert found["rows"]
    assert found["targets"] or name == "keytype"


def test_the_numbers_and_lengths_of_drafts_are_the_users(tiny_default: Path) -> None:
    """Superposed Decoding, Figures 9 to 11: k, the prefix and the length vary. The page has at most nine drafts."""
    shape = [
        "--model",
        str(tiny_default),
        "--k",
        "2,10",
        "--length",
        "3",
        "--context",
        "15",
        "--prefixes",
        "2",
        "--timed",
        "1",
        "--json",
    ]
    result = runner.invoke(app, ["eval", "drafts", *shape])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["name"], found["targets"]) == ("eval drafts", []), "the targets are for the default lengths"
    every = found["rows"]
    rows = [row for row in every if row["kind"] != "inside a word"]
    assert {row["k"] for row in rows} == {2, 10}
    assert {row["k"] for row in every if row not in rows} == {2}
    assert max(row["match"] for row in rows) <= 3
    assert all(row["perplexity"] >= 1 for row in rows)


def test_an_unknown_evaluation_names_the_known_ones() -> None:
    result = runner.invoke(app, ["eval", "nothing"])
    assert result.exit_code == 1
    assert "drafts, typing" in result.stderr
