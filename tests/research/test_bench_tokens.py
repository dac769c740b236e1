"""The measurements of whole tokens: under each rule, and of several texts in shared passes."""

from __future__ import annotations

import pytest

from core.samplers import Geometry, TopP
from core.speculative import ModelDrafter, NgramDrafter
from research.bench import batches, per_token
from research.drafters import accept_length
from tests.table_model import TableModel

MODEL = TableModel(seed=3)
PREFIXES = [[0, 1, 2], [3, 4, 5], [2, 2, 1]]


def test_each_rule_of_the_papers_table_times_whole_tokens() -> None:
    geometries = {metric: Geometry(MODEL.embeddings, metric) for metric in ("l2", "cosine")}
    rules = {name: per_token.rule(name, 2.0, geometries) for name in per_token.RULES}
    assert set(rules) >= {"top-w", "top-h", "min-p", "top-p"}
    for rule in rules.values():
        assert per_token.ms_per_token(MODEL, rule, [0, 1, 2], 0, tokens=4) > 0


def test_the_prefixs_own_pass_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(per_token.time, "perf_counter", lambda: now)
    whole = MODEL.forward

    class Slow(TableModel):
        def forward(self, rows):  # a pass over the prefix takes a minute, one over a token 3 ms
            nonlocal now
            now += 60 if len(rows[0].inputs) > 1 else 0.003
            return whole(rows)

    assert per_token.ms_per_token(Slow(seed=3), TopP(0.9), [0, 1, 2], 0, tokens=8) == pytest.approx(3)


def test_an_overhead_is_that_of_the_same_places() -> None:
    taken = {name: [10.0, 20.0, 40.0] for name in per_token.RULES} | {"top-w": [11.0, 22.0, 44.0]}
    found = per_token.row(1.0, "top-w", taken)
    assert found["ms_per_token"] == 22
    assert found["over_top_p_percent"] == pytest.approx(10)


@pytest.mark.parametrize("drafter", [lambda: NgramDrafter(), lambda: ModelDrafter(TableModel(seed=3), MODEL)])
def test_texts_in_shared_passes_are_those_of_plain_decoding(drafter) -> None:
    plain = batches.together(MODEL, PREFIXES, None, 0, length=20)
    drafted = batches.together(MODEL, PREFIXES, drafter(), 4, length=20)
    assert drafted.ids == plain.ids
    assert {len(ids) for ids in plain.ids} == {3 + 1 + 20}
    assert (plain.passes, accept_length(plain.statistics)) == (20, 1)
    assert drafted.passes == max(s.cycles for s in drafted.statistics)


def test_the_model_that_drafts_for_itself_becomes_text_whole() -> None:
    drafter = ModelDrafter(TableModel(seed=3), MODEL)
    runs = [batches.together(MODEL, PREFIXES, drafter, 4, length=20)]
    found = batches.row("a model", 3, 4, runs, [batches.together(MODEL, PREFIXES, None, 0, length=20)])
    assert found["accept_length"] == 5
    assert found["per_proposal"] == 1
    assert found["texts"] == 3
