"""What the evaluations of sampling rules compute, against a second way to compute it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.errors import InputError
from core.samplers import Chain, Geometry, Temperature, TopK, TopNSigma, TopW
from core.samplers.catalog import cuts
from research import exact_answers
from research.bench.samplers import listed_top_n_sigma, plain_top_w
from research.evals import matched
from research.evals.answers import TUNED
from research.evals.samplers import DRAWS, LENGTH, UNDECIDED, expected
from research.evals.samplers import row as columns_of
from research.evals.top_w import gains, mass_cuts, match_and_variety
from research.questions import Question
from tests.table_model import TableModel


def test_the_peers_do_the_same_as_the_rules():
    chance = torch.Generator().manual_seed(11)
    geometry = Geometry(torch.randn(2000, 32, generator=chance), "cosine")
    white = geometry.vectors(torch.arange(2000)).numpy()
    for warm_start, lam in ((0.999, 2.2), (0.5, 0.5)):
        rule = TopW(geometry, lam=lam, warm_start=warm_start, metric="cosine", top_m=300)
        for row in torch.randn(5, 2000, generator=chance) * 3:
            plain = plain_top_w(row.numpy(), white, lam=lam, warm_start=warm_start, top_m=300)
            assert np.array_equal(rule(None, row[None])[0].numpy(), plain)
    logits = torch.randn(3, 500, generator=chance)
    assert torch.equal(listed_top_n_sigma(torch.empty(0), logits), TopNSigma(1.0)(None, logits))


def test_the_expected_match_is_what_drawing_gives():
    """Drafts drawn along fixed distributions, counted, against what is computed without a draw."""
    chance = torch.Generator().manual_seed(3)
    logits = torch.randn(LENGTH, 6, generator=chance) * 2
    written = logits.argmax(1).tolist()
    rule = TopK(4)
    found = expected(rule, logits, [0], written)
    q = rule(None, logits).softmax(1)
    drawn = torch.stack([torch.multinomial(row, 40_000 * DRAWS, replacement=True, generator=chance) for row in q])
    agree = (drawn == torch.tensor(written)[:, None]).int().cumprod(0).sum(0).view(-1, DRAWS)  # tokens in common
    assert found["prefix"] == pytest.approx(float(agree.max(1).values.double().mean()), rel=0.02)
    first = 100 * (1 - (1 - q[torch.arange(LENGTH), torch.tensor(written)]) ** DRAWS).mean()
    assert found["match_1_percent"] == pytest.approx(float(first))
    assert found["kept"] == 4
    everything = expected(TopK(6), logits, [0], written)
    entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
    assert everything["surprise"] == pytest.approx(float(entropy), rel=1e-5)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("by", ["mass", "variety"])
def test_solved_rules_are_as_strong_as_top_n_sigma(by):
    logits = 3 * torch.randn(60, 60, generator=torch.Generator().manual_seed(6))
    dials = {rule: matched.DIALS[rule] for rule in ("min-p", "top-h")}
    peer, *others = matched.solved(logits, 1.0, by, {}, dials)
    assert (peer.rule, peer.value) == ("top-n-sigma", 1.0)
    assert [rule.rule for rule in others] == list(dials)
    for rule in others:
        assert rule.strength == pytest.approx(peer.strength, abs=3 * matched.REACHED), rule
        cut = Chain(cuts(rule.rule, rule.values))
        assert rule.strength == pytest.approx(matched.strength_of(logits, cut, by), abs=1e-6)


@pytest.mark.usefixtures("one_thread")
def test_a_gain_is_the_match_beyond_a_mass_cut_of_equal_variety():
    chance = torch.Generator().manual_seed(8)
    logits = 3 * torch.randn(40, 300, generator=chance)
    chosen = torch.multinomial(logits.softmax(1), 1, generator=chance)[:, 0]
    cuts = mass_cuts(logits, chosen)
    result = match_and_variety(logits, [row.topk(5).indices.tolist() for row in logits], chosen)
    x, y = cuts.mean(0).T
    expected_gain = result[:, 1].mean() - np.interp(result[:, 0].mean(), x, y)
    assert gains(result, cuts).mean() == pytest.approx(expected_gain, abs=1e-9)
    assert gains(cuts[:, 20], cuts) == pytest.approx(0, abs=1e-9), "a mass cut gains nothing at any place"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", TUNED)
def test_the_range_of_a_matched_parameter_goes_from_few_tokens_to_many(name):
    tuned = TUNED[name]
    chance = torch.Generator().manual_seed(9)
    logits, table = 3 * torch.randn(6, 300, generator=chance), torch.randn(300, 16, generator=chance)
    kept = []
    for end in (tuned.few, tuned.many):
        (cut,) = cuts(tuned.rule, {**tuned.values, tuned.parameter: end}, embeddings=table)
        kept.append(int(cut(None, logits).isfinite().sum()))
    assert kept[0] < kept[1]


def test_rows_have_paired_differences_and_say_what_they_decide():
    """Every text differs by as much, so a small difference decides where the texts themselves scatter widely."""
    texts = [
        {name: float(n) for name in ("prefix", "match_1_percent", "different", "surprise", "kept")} for n in range(9)
    ]
    ours = [figures | {"prefix": figures["prefix"] + 0.1} for figures in texts]
    columns = columns_of(ours, texts)
    assert columns["prefix_difference"] == pytest.approx(0.1)
    assert columns["prefix_difference_ci"] == pytest.approx(0, abs=1e-9) and columns["prefix_ci"] > 1
    assert columns["to top-n-sigma"] == "prefix more"
    assert columns_of(texts, texts)["to top-n-sigma"] == UNDECIDED
    assert (columns["kept_low"], columns["kept"], columns["kept_high"]) == (1, 4, 8)
    assert "prefix_difference" not in columns_of(texts)


def test_a_right_answer_is_a_whole_word():
    """ "ab" then a letter is another word: the probability is that of a, of b, and of an end after them."""
    model = TableModel(5)
    model.tokenizer.pieces = [b"a", b"b", b" c", b"d", b" "]
    model.tokenizer.encode = lambda text: [b"abcd ".index(c) for c in text.lower().encode()]
    questions = [Question("x", "ab", "ba", ("a", "BA")), Question("x", "b", "d")]
    right = exact_answers.p_right(exact_answers.read(model, questions), Temperature(1.0))

    def path(*ids):
        q = [model.after(list(ids[: n + 1])).softmax(0) for n in range(len(ids))]
        chance = 1.0
        for n, token in enumerate(ids[2:], 1):
            chance *= float(q[n][token])
        return chance * float(q[-1][[2, 4]].sum())

    assert right[0] == pytest.approx(path(0, 1, 4, 1, 0) + path(0, 1, 4, 0), rel=1e-5)
    assert len(right) == 2 and 0 < right[1] < 1
    with pytest.raises(InputError, match="reply"):
        exact_answers.read(model, [Question("x", "Who?", "d", asked=True)])
