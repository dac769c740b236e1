"""The draft modes: what each promises, the same steps for all, and rules and modes through text and command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from app.cli.main import app
from core.controls import CATALOG, MODE_CONTROLS, MODES, PRESETS, Preset, checked_rule
from core.drafting.drafts import Options
from core.drafting.driver import Driven
from core.errors import InputError
from core.modes.start import Mode, draft, start
from core.samplers import Rule, TopK
from core.samplers.catalog import RULES, sampler
from core.samplers.view import look, sweep, top_w_map
from tests.completing import complete

pytestmark = pytest.mark.usefixtures("one_thread")

ENDLESS = frozenset[int]()
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def prefix(tiny_llama):
    return tiny_llama.tokenizer.encode("The quick brown fox jumps over the lazy")


def last(model, prefix, mode, **options):
    *_, drafts = draft(model, prefix, mode, **{"length": 4, "stop_ids": ENDLESS, **options})
    return drafts


@every_mode
def test_every_mode_takes_the_same_steps_and_may_stop_at_any(tiny_llama, prefix, mode):
    for stop_after in range(1, 5):
        sequence = tiny_llama.open()
        free = len(tiny_llama._free_ids)
        drafts = draft(tiny_llama, prefix, mode, k=3, length=4, forks=0, stop_ids=ENDLESS, sequence=sequence)
        steps = [next(drafts) for _ in range(stop_after)]
        assert [d.step for d in steps] == list(range(1, stop_after + 1))
        assert [d.done for d in steps] == [d.step == 4 for d in steps]
        for d in steps:
            assert all(len(ids) == d.step for ids in d.ids)
            assert d.logprobs == sorted(d.logprobs, reverse=True)
            assert len(set(d.lineages)) == len(d.lineages) == len(d.ids)
        drafts.close()
        assert sequence.inputs == prefix
        assert len(tiny_llama._free_ids) >= free  # every row was given back, and perhaps some that others dropped
        sequence.close()
    assert len(steps[-1].ids) == (6 if mode == "sampled+superposed" else Mode(mode).most(3))  # n·k


@every_mode
def test_every_mode_keeps_to_the_rule_and_to_the_allowed_beginnings(tiny_llama, prefix, mode):
    allowed = np.array([100, 2000, 30000, 77])
    found = last(tiny_llama, prefix, mode, k=2, first_ids=allowed, rule=TopK(2))
    assert {ids[0] for ids in found.ids} <= set(allowed.tolist())
    sequence = tiny_llama.open()
    best = set(sequence.feed(prefix)[torch.from_numpy(allowed)].topk(2).indices.tolist())
    sequence.close()
    assert {ids[0] for ids in found.ids} <= {int(allowed[i]) for i in best}


def test_greedy_and_branching_continue_greedily(tiny_llama, prefix):
    sequence = tiny_llama.open()
    logits = sequence.feed(prefix)
    firsts = logits.topk(3).indices.tolist()
    expected = []
    for first in firsts:
        ids = [first]
        while len(ids) < 4:
            ids.append(int(sequence.sync(prefix + ids).argmax()))
        expected.append(ids)
    sequence.close()
    assert last(tiny_llama, prefix, "greedy").ids == expected[:1]
    assert sorted(last(tiny_llama, prefix, "branching", k=3).ids) == sorted(expected)


def test_draws_are_independent_of_how_many_and_of_what_was_typed(tiny_llama, prefix):
    three = last(tiny_llama, prefix, "sampled", k=3, seed=5)
    assert three.ids == last(tiny_llama, prefix, "sampled", k=3, seed=5).ids
    assert three.ids != last(tiny_llama, prefix, "sampled", k=3, seed=6).ids
    first = three.ids[three.lineages.index(0)]
    assert last(tiny_llama, prefix, "sampled", k=1, seed=5).ids == [first]
    # Typing along a draft: its token is part of the text now, and the rest of the draft is unchanged.
    assert last(tiny_llama, prefix + first[:1], "sampled", k=1, seed=5, length=3).ids == [first[1:]]


def test_a_draw_survives_a_crop_that_keeps_its_token(tiny_llama, prefix):
    wide = last(tiny_llama, prefix, "sampled", k=3, rule=TopK(40), length=1)
    narrow = last(tiny_llama, prefix, "sampled", k=3, rule=TopK(4), length=1)
    sequence = tiny_llama.open()
    likeliest = sequence.feed(prefix).topk(4).indices.tolist()
    sequence.close()
    for lineage, ids in zip(wide.lineages, wide.ids, strict=True):
        if ids[0] in likeliest:
            assert narrow.ids[narrow.lineages.index(lineage)] == ids


def test_draws_follow_the_distribution():
    """Frequencies over 4,000 seeds of a small distribution, within 4 standard errors."""
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -torch.inf])
    p = logits.double().softmax(0)
    counts = torch.zeros(5)
    for seed in range(1000):
        begin = start(Silent(), [1], Options(k=4, length=1, seed=seed), Mode("sampled"))
        for ids in Driven(begin([logits])).latest.ids:
            counts[ids[0]] += 1
    error = (p * (1 - p) / 4000).sqrt()
    assert bool(((counts / 4000 - p).abs() <= 4 * error + 1e-9).all())


class Silent:
    """A sequence of a model that is never used."""

    class model:
        class tokenizer:
            eos_ids = frozenset[int]()


def test_a_beam_finds_the_likeliest_texts(tiny_llama, prefix):
    """As wide as there are candidates at depth two, the beam is an exhaustive search."""
    found = last(tiny_llama, prefix, "beam", k=6, length=2, candidates=6)
    sequence = tiny_llama.open()
    logq = sequence.sync(prefix).log_softmax(0).topk(6)
    texts = []
    for score, token in zip(logq.values.tolist(), logq.indices.tolist(), strict=True):
        after = sequence.sync([*prefix, token]).log_softmax(0).topk(6)
        texts += [(score + s, [token, t]) for s, t in zip(after.values.tolist(), after.indices.tolist(), strict=True)]
    sequence.close()
    texts.sort(reverse=True)
    assert found.ids == [ids for _, ids in texts[:6]]
    assert found.logprobs == pytest.approx([score for score, _ in texts[:6]], abs=0.05)


def test_an_ended_beam_stays_with_its_score(tiny_llama, prefix):
    free = last(tiny_llama, prefix, "beam", k=3, length=5)
    stop = free.ids[0][1]
    found = last(tiny_llama, prefix, "beam", k=3, length=5, stop_ids=frozenset({stop}))
    assert any(draft.ended and draft.ids[-1] == stop for draft in found.drafts)
    assert all(stop not in ids[:-1] for ids in found.ids)


def test_drafts_are_superposed_on_what_was_drawn(tiny_llama, prefix):
    drawn = last(tiny_llama, prefix, "sampled", k=2, length=2, seed=3)
    found = last(tiny_llama, prefix, Mode("sampled+superposed", samples=2, sampled_tokens=2), k=3, length=4, seed=3)
    assert {tuple(ids[:2]) for ids in found.ids} <= {tuple(ids) for ids in drawn.ids}
    # All n·k drafts of section 4.5: distinct beginnings after each of the sampled ones.
    assert len(found.ids) == len({tuple(ids[:3]) for ids in found.ids}) == 2 * 3
    assert sorted(found.lineages) == list(range(6))
    assert found.logprobs == sorted(found.logprobs, reverse=True)
    assert last(tiny_llama, prefix, Mode("sampled+superposed", 2, 9), length=4, seed=3).step == 4


@pytest.mark.parametrize(("samples", "length"), [(1, 6), (2, 1), (2, 2), (4, 6)])
def test_what_is_superposed_on_draws_keeps_its_rows_at_every_step(tiny_llama, prefix, samples, length):
    mode = Mode("sampled+superposed", samples=samples, sampled_tokens=2)
    seen: list[list[int]] = []
    for drafts in draft(tiny_llama, prefix, mode, k=3, length=length, seed=4):
        assert len(drafts.ids) == (samples if drafts.step <= 2 else 3 * samples)
        assert drafts.logprobs == sorted(drafts.logprobs, reverse=True)
        seen.append(sorted(drafts.lineages))
    assert seen[2:] == seen[2:3] * len(seen[2:])  # once they are superposed, no row comes or goes


def test_the_page_shows_the_best_of_what_is_superposed_on_draws(autocomplete):
    mode, n, k = Mode("sampled+superposed", samples=3, sampled_tokens=1), 3, 2
    completion = complete(autocomplete.open(), "The", mode=mode, k=k, length=4, heal=False)
    while not completion.done:
        completion.advance(autocomplete.model.forward(completion.rows()))
        assert {row.id for row in completion.drafts} <= set(range(k))
    ids = autocomplete.healer.plan("The", window=autocomplete.window, heal=False).prefix_ids
    ngrams = autocomplete.mixture(0.9, 0.9, None)
    steps = list(draft(autocomplete.model, ids, mode, k=k, length=4, ngrams=ngrams))
    first = next(drafts for drafts in steps if drafts.step == 2)
    assert len(first.ids) == n * k
    by_row = sorted(first.drafts, key=lambda d: d.slot)
    texts = list(dict.fromkeys(tuple(d.ids) for d in first.drafts))  # best first, without those of equal draws
    assert len(first.drafts) == n * k
    assert [tuple(d.ids) for d in by_row[:k]] == texts[:k]


def test_unknown_modes_are_refused(tiny_llama, prefix):
    with pytest.raises(InputError, match="mode 'best' given; one of superposed, sampled"):
        Mode("best")
    with pytest.raises(InputError, match="samples 0 given"):
        Mode("sampled+superposed", samples=0)


# --- text in, drafts out ----------------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(app, [*arguments])


def test_the_command_line_takes_rules_and_modes(autocomplete, monkeypatch):
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: autocomplete)
    text = "Once upon a time there was a"
    common = ("complete", text, "--mode", "sampled", "--length", "4", "--min-confidence", "0", "--json")
    drawn = [json.loads(run(*common, "--rule", "top-w", "--beta", "4", "--temperature", "1.5").stdout) for _ in "ab"]
    assert drawn[0]["drafts"]
    assert drawn[0]["drafts"] == drawn[1]["drafts"]
    spliced = ("--mode", "sampled+superposed", "--samples", "3", "--sampled-tokens", "1", "--k", "1")
    assert len(json.loads(run(*common, *spliced).stdout)["drafts"]) == 1  # the best of three
    view = run("sample-view", text, "--temperature", "2", "--json")
    assert [c["rule"] for c in json.loads(view.stdout)["choices"]] == list(CATALOG)
    assert "top-nσ" in run("sample-view", text).stdout


# --- the catalogue ----------------------------------------------------------------------------------------


def test_the_catalogue_names_the_rules_as_they_name_themselves():
    assert set(RULES) == set(CATALOG) - {"none"}
    for name, kind in RULES.items():
        assert CATALOG[name].title == kind.title
        values = {} if name != "top-w" else {"metric": "uniform"}
        assert isinstance(sampler(name, values, 1.5), Rule)
    flags = [control.flag for entry in CATALOG.values() for control in entry.controls]
    for mode, controls in MODE_CONTROLS.items():
        flags += [control.flag for control in controls]
        made = Mode(mode)
        assert {control.name: control.default for control in controls} == {
            name: getattr(made, name) for name in ("samples", "sampled_tokens")
        }
    assert len(flags) == len(set(flags))


def test_presets_travel_as_json_and_bad_ones_are_refused_by_name():
    for preset in PRESETS:
        assert Preset.from_json(preset.as_json()) == preset
        checked_rule(preset.rule, preset.values, preset.temperature)
    for text, said in (
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"name": "a"}', "no name or no rule"),
        ('{"name": "a", "rule": "top-p", "colour": 1}', "unknown field 'colour'"),
        ('{"name": "a", "rule": "top-q"}', "rule 'top-q' given"),
        ('{"name": "a", "rule": "top-p", "values": {"p": 1}}', "p given for top-p; its controls are top_p"),
        ('{"name": "a", "rule": "top-p", "values": {"top_p": "x"}}', "top-p 'x' given; a number from 0 to 1 expected"),
        ('{"name": "a", "rule": "top-k", "values": {"top_k": 2.5}}', "a whole number"),
        ('{"name": "a", "rule": "top-p", "temperature": 99}', "temperature 99 given"),
        ('{"name": 3, "rule": "top-p"}', "name 3 is not text"),
        ('{"name": "a", "rule": "none", "k": 10}', "k 10 given; a whole number from 1 to 9 expected"),
        ('{"name": "a", "rule": "none", "length": true}', "length True given; a whole number from 1 to 32"),
        ('{"name": "a", "rule": "none", "seed": -1}', "seed -1 given"),
        ('{"name": "a", "rule": "none", "mode": "beam", "mode_values": {"samples": 2}}', "samples given for mode beam"),
        ('{"name": "a", "rule": "none", "mode_values": 3}', "not a JSON object"),
    ):
        with pytest.raises(InputError, match=said):
            Preset.from_json(text)


# --- views ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def after(autocomplete, prefix):
    sequence = autocomplete.model.open()
    logits = sequence.feed(prefix)
    sequence.close()
    return logits


def test_a_view_shows_the_effect_of_the_rules(autocomplete, after):
    tokenizer = autocomplete.model.tokenizer
    view = look(after, tokenizer, 1.5, None, autocomplete.geometries)
    p = (after.double() / 1.5).softmax(0)
    assert [t.id for t in view.tokens] == p.topk(30).indices.tolist()
    assert view.tokens[0].text == tokenizer.decode([view.tokens[0].id])
    for choice in view.choices:
        out = autocomplete.sampler(choice.rule, {}, 1.5)(None, after[None])[0]
        kept = out > -torch.inf
        assert choice.count == int(kept.sum())
        assert choice.mass == pytest.approx(float(p[kept].sum()))
        q = p[kept] / p[kept].sum()
        assert choice.entropy == pytest.approx(float(-(q * q.log()).nansum()), abs=1e-6)
        assert choice.kept == [bool(kept[t.id]) for t in view.tokens]
    assert view.top_w is not None
    assert json.loads(json.dumps(view.as_dict()))["top_w"]["geometry_mattered"] == view.top_w.geometry_mattered


def test_a_sweep_counts_what_is_kept_and_top_n_sigma_stays_flat(autocomplete, after):
    counts = sweep(after, None, autocomplete.geometries, (0.5, 1.0, 2.0))
    assert len(set(counts["top-n-sigma"])) == len(set(counts["top-k"])) == 1
    assert counts["top-p"] == sorted(counts["top-p"])
    for name, found in counts.items():
        alone = autocomplete.sampler(name, {}, 2.0)(None, after[None])
        assert found[2] == int((alone > -torch.inf).sum())


def test_the_map_puts_near_tokens_near(autocomplete, after):
    points = top_w_map(after, autocomplete.model.tokenizer, 2.0, {"beta": 6.0, "lam": 0.5}, autocomplete.geometries)
    assert len(points) == 120
    assert any(p.kept for p in points)
    plane = torch.tensor([[p.x, p.y] for p in points])
    u = autocomplete.geometries["l2"].vectors(torch.tensor([p.token.id for p in points]))
    apart = torch.triu_indices(120, 120, 1)
    pairs = torch.stack([torch.cdist(plane, plane)[*apart], torch.cdist(u, u)[*apart]])
    assert float(torch.corrcoef(pairs)[0, 1]) > 0.3


def test_only_what_finishes_the_word_is_in_a_healed_view(autocomplete):
    session = autocomplete.open()
    completion = complete(session, "I am writ")
    while completion.next_logits is None:
        completion.advance(autocomplete.model.forward(completion.rows()))
    view = look(completion.next_logits, autocomplete.model.tokenizer)
    assert view.possible < 100
    assert all(t.text.strip().startswith("writ") for t in view.tokens)
    completion.close()
    session.close()
