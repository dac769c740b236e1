"""`eval perplexity`: the columns of Superposed Decoding's Table 1."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from core.errors import InputError
from research.evals import perplexity
from research.report import Report
from tests.ngram_tools import store_of
from tests.table_model import TableModel


def test_the_perplexity_of_a_draft_is_that_of_its_tokens() -> None:
    model, text, draft = TableModel(seed=4), [0, 1, 2], [3, 0, 5]
    total = sum(float(torch.log_softmax(model.after(text + draft[:n]), 0)[t]) for n, t in enumerate(draft))
    assert perplexity.perplexity(model.open(), text, draft) == pytest.approx(math.exp(-total / 3), rel=1e-4)


def test_the_columns_are_means_over_places() -> None:
    row = perplexity.row("x", [[2.0, 4.0, 9.0], [6.0, 3.0], []])
    assert (row["places"], row["draft_1"], row["draft_2"], row["draft_3"]) == (2, 4.0, 3.5, 9.0)
    assert row["best"] == 2.5
    assert row["average"] == pytest.approx((5 + 4.5) / 2)


def test_alpha_and_tau_are_a_map() -> None:
    rows = [perplexity.row(name, [[1.0 + n, 2.0 + n]]) for n, name in enumerate(["nucleus", *perplexity.GRID])]
    drawn = ElementTree.fromstring(perplexity.plots(Report("eval perplexity", rows)))
    cells = [e for e in drawn.iter() if e.tag.endswith("rect")]
    assert len(cells) == 2 * len(perplexity.ALPHAS) * len(perplexity.TAUS)
    assert "τ = 1, α = 0.8: 17.5" in {e.text for e in drawn.iter()}, "the average of the last row"
    with pytest.raises(InputError, match="omit --plot"):
        perplexity.plots(Report("eval perplexity", rows[:1]))


def test_drafts_of_n_grams_alone_follow_the_longest_known_context(tmp_path: Path) -> None:
    ngrams = {(0,): 9, (1,): 9, (2,): 9, (3,): 9, (4,): 9}
    ngrams |= {(1, 2): 5, (1, 3): 4, (1, 4): 1, (2, 3): 3, (3, 0): 2, (4, 0): 1, (0, 1): 1}
    ngrams |= {(0, 1, 4): 1, (1, 4, 2): 1}
    store = store_of(tmp_path / "s.ngram", ngrams, 6, range(2, 4))
    drafts = perplexity.ngrams_alone(store)(TableModel().open(), [5, 0, 1], 3, 3)
    assert drafts == [[4, 2, 3], [2, 3, 0], [3, 0, 1]]
    assert perplexity.ngrams_alone(store)(TableModel().open(), [5], 3, 3) == []
