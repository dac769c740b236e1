"""What the measurements of speculation compute: intervals, costs, bounds, and whether a text is the same."""

from __future__ import annotations

import numpy as np
import pytest

from core.speculative import (
    ModelDrafter,
    NgramDrafter,
    Statistics,
)
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head
from research.bench import batches
from research.bench.speculative import SpeculativeMethod, row
from research.drafters import accept_length
from research.evals import dice, lossless
from research.prompts import prompts
from research.report import number_in
from research.scores import half_interval, ratio_interval
from tests.table_model import TableModel

pytestmark = pytest.mark.usefixtures("one_thread")


def test_what_slows_a_prompt_for_both_methods_is_no_doubt_about_the_speed_up() -> None:
    def method(*seconds: float) -> SpeculativeMethod:
        statistics = [Statistics(cycles=10, tokens=20, seconds=s) for s in seconds]
        return SpeculativeMethod("a", None, "lossless", statistics={"some": statistics}, logprobs={"some": [0.0]})

    plain = method(1.0, 2.0, 4.0)
    alike, apart = row("some", method(0.5, 1.0, 2.0), plain), row("some", method(2.0, 1.0, 0.5), plain)
    for found in (alike, apart):
        assert found["speed_up"] == pytest.approx(2)
        assert found["tokens_per_s_ci"] == pytest.approx(
            number_in(found, "tokens_per_s") * half_interval([3 / 7, 6 / 7, 12 / 7])  # seconds divided by their mean
        )
        assert found["accept_length_ci"] == pytest.approx(0)
    assert alike["speed_up_ci"] == pytest.approx(0, abs=1e-9)
    assert number_in(apart, "speed_up_ci") > number_in(apart, "tokens_per_s_ci") / 20
    assert row("some", plain, plain)["speed_up_ci"] is None


def test_the_interval_of_a_ratio_is_the_bootstraps() -> None:
    random = np.random.default_rng(0)
    cycles = random.integers(10, 60, 80)
    tokens = cycles * random.uniform(1, 3, 80)
    again = random.integers(80, size=(4000, 80))
    ratios = tokens[again].sum(1) / cycles[again].sum(1)
    assert ratio_interval([tokens.tolist()], [cycles.tolist()]) == pytest.approx(1.96 * ratios.std(), rel=0.05)


def test_each_method_is_accepted_as_often_as_its_theory_says() -> None:
    """One sampled proposal: Σ min(p, q)."""
    random = np.random.default_rng(1)
    p, q = random.dirichlet(np.ones(8)), random.dirichlet(np.ones(8))
    found = [dice.shares(p, q, place) for place in range(60)]
    assert np.mean([each[dice.REJECTION][0] for each in found]) == pytest.approx(np.minimum(p, q).sum(), abs=0.05)
    for each in found:
        assert all(shares == sorted(shares) for shares in each.values())
        assert each[dice.LIKELIEST][-1] == 1  # all eight tokens are proposed


def test_intervals_are_over_prompts_and_not_over_their_places() -> None:
    def place(share: float) -> dict[str, list[float]]:
        return {dice.COUPLED: [share] * len(dice.COUNTS)}

    # Places of one prompt are alike: five of each are not more evidence than one.
    for places in (1, 5):
        (row,) = dice.table([[place(share)] * places for share in (0.2, 0.5, 0.6, 0.9)] + [[]])
        assert (row["prompts"], row["places"]) == (4, 4 * places)
        assert row["8"] == pytest.approx(0.55)
        assert row["8_ci"] == pytest.approx(1.96 * (0.25 / 3) ** 0.5 / 2)  # squares of the deviations have the sum 0.25


MODEL = TableModel(seed=3)
PREFIXES = [[0, 1, 2], [3, 4, 5], [2, 2, 1]]


@pytest.mark.parametrize("drafter", [lambda: NgramDrafter(), lambda: ModelDrafter(TableModel(seed=3), MODEL)])
def test_texts_in_shared_passes_are_those_of_plain_decoding(drafter) -> None:
    plain = batches.together(MODEL, PREFIXES, None, 0, length=20)
    drafted = batches.together(MODEL, PREFIXES, drafter(), 4, length=20)
    assert drafted.ids == plain.ids
    assert {len(ids) for ids in plain.ids} == {3 + 1 + 20}
    assert (plain.passes, accept_length(plain.statistics)) == (20, 1)
    assert drafted.passes == max(s.cycles for s in drafted.statistics)


MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]


def test_the_same_text_is_found_to_be_the_same_and_another_to_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for temperature in (0, 1):
        assert all(
            one.same for one in lossless.compared(MODEL, [NgramDrafter(), NgramDrafter()], TEXT * 4, temperature)
        )
    real = lossless.generate

    def broken(model, drafter, ids, mode, **options):
        other = {"seed": 9, "temperature": 50.0} if mode == "lossless" else {}
        return real(model, drafter, ids, mode, **(options | other))

    monkeypatch.setattr(lossless, "generate", broken)
    for temperature in (0, 1):
        (found,) = lossless.compared(MODEL, [NgramDrafter()], TEXT * 4, temperature)
        assert not found.same
        assert found.margin is not None


def test_the_default_model_on_torch_says_the_same_with_and_without(torch_model) -> None:
    """A trimmed set: the whole one is `polydraft eval lossless --text …`."""
    drafters = [NgramDrafter(), Eagle3Drafter(Eagle3Head.load(DEFAULT_HEAD), torch_model)]
    try:
        for kind, temperature in (("chat", 0), ("code", 1)):
            ids = prompts(None, torch_model.tokenizer, 1)[kind][0]
            texts = lossless.compared(torch_model, drafters, ids, temperature, length=16)
            assert all(text.same for text in texts), texts
    finally:
        torch_model.watch(())
