"""What the measurements of the samplers compute, on small cases, and that the documentation names every flag."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.cli.main import app
from core.controls import CATALOG, MODE_CONTROLS, MODES
from core.errors import InputError
from core.samplers import DRY, XTC, Chain, Geometry, Mirostat, Temperature, TopK, TopNSigma, TopP, TopW
from core.samplers.catalog import cuts
from research import chances, evals
from research.bench.samplers import listed_top_n_sigma, plain_top_w
from research.evals import matched, top_n_sigma, top_w_beta, top_w_grid
from research.evals.samplers import DRAWS, LENGTH, UNDECIDED, expected, self_bleu
from research.evals.samplers import row as columns_of
from research.evals.top_w import METRICS, SCALES, TEMPERATURES, WARM, WEIGHTS, judged, mass_cuts
from research.plots import heat_map, lines, page
from research.questions import Question
from research.report import Report
from tests.paths import ROOT
from tests.table_model import TableModel

DOCS = (ROOT / "docs" / "samplers.md").read_text()


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


def test_a_match_among_three_draws_is_counted_as_its_chance():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    found = judged(logits, [[0, 1], [2]], torch.tensor([1, 0]))
    q = float(torch.tensor([2.0, 1.0]).softmax(0)[1])
    assert found["match"] == pytest.approx(100 * (1 - (1 - q) ** 3) / 2)
    assert found["different"] == pytest.approx(((1 - (1 - q) ** 3) + (1 - q**3) + 1) / 2)


def test_mass_cuts_run_from_one_token_to_everything():
    logits = torch.randn(40, 50, generator=torch.Generator().manual_seed(12)) * 2
    chosen = logits.argmax(1)
    cuts = mass_cuts(logits, chosen)
    assert cuts[0].tolist() == pytest.approx([1.0, 100.0])  # one token, and it is the writer's
    whole = judged(logits, [list(range(50))] * 40, chosen)
    assert cuts[-1].tolist() == pytest.approx([whole["different"], whole["match"]], rel=1e-6)
    assert (np.diff(cuts[:, 0]) >= 0).all()


def test_eval_top_w_runs_every_setting_of_the_table_behind_our_default():
    table = DOCS.split("| β | warm start | geometry changed the set |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    listed = {tuple(float(cell) for cell in line.split("|")[1:3]) for line in table}
    assert len(listed) == 12
    assert listed <= {(beta, warm) for lam, beta in WEIGHTS for warm in WARM if lam == 2.2}
    assert {1.0} <= set(SCALES) and "l2" in METRICS and 1.0 in TEMPERATURES
    ours = CATALOG["top-w"].controls
    chosen = {control.name: control.default for control in ours}
    assert (chosen["beta"], chosen["warm_start"]) in listed


def test_the_grid_of_top_w_is_the_papers_with_our_point_on_it():
    chance = torch.Generator().manual_seed(5)
    geometry = Geometry(torch.randn(60, 8, generator=chance), "l2")
    logits = 3 * torch.randn(2, 60, generator=chance)
    found = {t: top_w_grid.rows(logits / t, torch.tensor([3, 7]), {"l2": geometry}, t) for t in top_w_grid.TEMPERATURES}
    rows = found[1.0]
    grid = {(row["lam"], row["beta"]): row for row in rows if row["point"] == "grid"}
    assert len(grid) == 18 * 18
    shipped = {control.name: control.default for control in CATALOG["top-w"].controls}
    ours = next(row for row in rows if row["point"] == "ours")
    assert (ours["lam"], ours["beta"]) == (shipped["lam"], shipped["beta"])
    assert all(row["kept"] == 1 for (lam, beta), row in grid.items() if beta <= lam and lam), (
        "mass is not worth a token"
    )
    assert grid[0.25, 5.0]["kept"] > grid[2.5, 5.0]["kept"]
    drawn = ElementTree.fromstring(top_w_grid.plots(Report("top-w-grid", [*rows, *found[2.0]])))
    assert len([node for node in drawn.iter() if node.tag.endswith("rect")]) == 4 * 18 * 18
    assert {"ours", "the paper's"} <= {node.text for node in drawn.iter()}


def test_the_bounds_of_a_nucleus_are_those_of_its_tokens():
    logits = 2 * torch.randn(6, 300, generator=torch.Generator().manual_seed(2))
    rows = top_n_sigma.nuclei(logits)
    assert [row["p"] for row in rows] == list(top_n_sigma.MASSES)
    for row in rows:
        kept = TopP(row["p"])(None, logits).isfinite()
        inside = torch.where(kept, logits, torch.inf).amin(1)
        outside = torch.where(kept, -torch.inf, logits).amax(1)
        mu, sigma, top = logits.mean(1), logits.std(1), logits.amax(1)
        by_hand = (inside - mu, outside - mu, top - inside, top - outside)
        for name, value in zip(top_n_sigma.BOUNDS, by_hand, strict=True):
            assert row[name] == pytest.approx(float((value / sigma).mean()), abs=1e-4)
    shares = top_n_sigma.spread(logits)
    assert sum(row["share"] for row in shares) == pytest.approx(1)
    places = top_n_sigma.along(logits, list("abcdef"))
    assert [row["within"] for row in places] == TopNSigma(1.0)(None, logits).isfinite().sum(1).tolist()
    drawn = ElementTree.fromstring(top_n_sigma.plots(Report("eval top-n-sigma", [*shares, *rows, *places])))
    assert set(top_n_sigma.BOUNDS) <= {node.text for node in drawn.iter()}


def test_a_map_has_a_cell_for_each_pair_darker_for_a_greater_value():
    values = {(1.0, 1.0): 0.0, (2.0, 1.0): 1.0, (1.0, 3.0): 2.0, (2.0, 3.0): 4.0}
    drawn = ElementTree.fromstring(page([heat_map("a", "n", "T", values, {"us": (1.5, 3.0)})]))
    cells = {node[0].text: node for node in drawn.iter() if node.tag.endswith("rect")}
    shades = [float(cells[f"n = {n:g}, T = {t:g}: {v:g}"].get("fill-opacity", 0)) for (n, t), v in values.items()]
    assert shades == sorted(set(shades))
    mark, of_legend = (node for node in drawn.iter() if node.tag.endswith("circle"))
    assert of_legend.get("fill") == mark.get("fill")
    left, right = (float(cells[f"n = {n}, T = 3: {v}"].get("x", 0)) for n, v in ((1, 2), (2, 4)))
    assert left < float(mark.get("cx", 0)) == pytest.approx(right, abs=0.2), "a point lies between the cells' middles"


def test_self_bleu_is_one_for_copies_and_nothing_for_strangers():
    assert self_bleu([[1, 2, 3]] * 3) == 1.0
    assert self_bleu([[1, 2, 3], [4, 5, 6], [7, 8, 9]]) == 0.0
    assert 0 < self_bleu([[1, 2, 3], [1, 2, 9], [7, 8, 9]]) < 1


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


def test_min_p_matches_top_n_sigma_at_the_deviation_of_the_logits():
    """Logits with one σ everywhere: n·σ below the greatest is the probability e^(-n·σ)."""
    logits = torch.randn(200, 500, generator=torch.Generator().manual_seed(7))
    logits = 3 * (logits - logits.mean(1, keepdim=True)) / logits.std(1, keepdim=True)
    _, min_p = matched.solved(logits, 1.0, "mass", {}, {"min-p": matched.DIALS["min-p"]})
    assert min_p.value == pytest.approx(np.exp(-3), rel=0.05)


@settings(max_examples=50)
@given(target=st.floats(-2, 3), rising=st.booleans(), by_logarithm=st.booleans())
def test_bisection_finds_the_value_or_the_nearer_end(target, rising, by_logarithm):
    sign = 1 if rising else -1
    x, found = matched.bisected(lambda x: sign * x, 0.01, 1.0, sign * target, by_logarithm)
    assert found == sign * x
    assert x == pytest.approx(min(max(target, 0.01), 1.0), abs=2 * matched.TOLERANCE)


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


def test_dry_and_xtc_read_the_writers_text():
    """Places in one text differ only by what was written before them."""
    logits = torch.zeros(LENGTH, 6)
    repeated, fresh = [1, 2, 1, 2, 1, 2], [0, 1, 2, 3, 4, 5]
    dry = DRY(multiplier=5.0, allowed=1)
    with_penalty, without = (
        expected(dry, logits, [written[-1]], written)["match_1_percent"] for written in (repeated, fresh)
    )
    assert with_penalty < without
    logits[:] = torch.arange(6) / 10
    kept = {expected(XTC(threshold=0.1, probability=0.5), logits, [n], fresh)["kept_mass"] for n in range(6)}
    assert len(kept) > 1, "the draw follows the text"


def test_the_kept_mass_is_that_before_the_cut():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).expand(LENGTH, 3)
    found = expected(TopK(2), logits, [0], [0] * LENGTH)
    assert found["kept_mass"] == pytest.approx(0.8)
    assert found["entropy"] == pytest.approx(-(0.625 * np.log(0.625) + 0.375 * np.log(0.375)), rel=1e-5)


def test_a_right_answer_is_a_whole_word():
    """ "ab" then a letter is another word: the probability is that of a, of b, and of an end after them."""
    model = TableModel(5)
    model.tokenizer.pieces = [b"a", b"b", b" c", b"d", b" "]
    model.tokenizer.encode = lambda text: [b"abcd ".index(c) for c in text.lower().encode()]
    questions = [Question("x", "ab", "ba", ("a", "BA")), Question("x", "b", "d")]
    right = chances.of_right(chances.read(model, questions), Temperature(1.0))

    def path(*ids):
        q = [model.after(list(ids[: n + 1])).softmax(0) for n in range(len(ids))]
        chance = 1.0
        for n, token in enumerate(ids[2:], 1):
            chance *= float(q[n][token])
        return chance * float(q[-1][[2, 4]].sum())

    assert right[0] == pytest.approx(path(0, 1, 4, 1, 0) + path(0, 1, 4, 0), rel=1e-5)
    assert len(right) == 2 and 0 < right[1] < 1
    with pytest.raises(InputError, match="reply"):
        chances.read(model, [Question("x", "Who?", "d", asked=True)])


def test_the_figure_of_beta_has_a_line_for_each_lambda_and_metric():
    rows = [
        {"kind": "facts", "T": t, "metric": metric, "lam": lam, "beta": beta} | top_w_beta.row([0.5, beta / 10])
        for t in (1.0, 2.0)
        for metric, lam in top_w_beta.SETTINGS
        for beta in top_w_beta.BETAS
    ]
    drawn = {node.text for node in ElementTree.fromstring(top_w_beta.plots(Report("", rows))).iter()}
    assert {"λ = 2.2, whitened", "λ = 0.5, l2", "facts, T = 2: correct answers"} <= drawn
    apart = top_w_beta.row([0.5, 0.7, 0.2], [0.4, 0.6, 0.1])
    assert (apart["to_l2"], apart["to_l2_ci"]) == (pytest.approx(0.1), pytest.approx(0, abs=1e-9))


def test_mirostat_follows_the_writers_path():
    logits = torch.randn(LENGTH, 50, generator=torch.Generator().manual_seed(4)) * 3
    likely, unlikely = logits.argmax(1).tolist(), logits.argmin(1).tolist()
    kept = [expected(Mirostat(tau=2.0, eta=0.5), logits, [0], written)["surprise"] for written in (likely, unlikely)]
    assert kept[0] > kept[1], "after surprising tokens it keeps less"


def test_curves_are_drawn_with_every_line_named():
    found = page(
        [
            lines("a < b", "T", {"one": [(0.5, 1), (4, 3)], "two": [(0.5, 2), (4, 3)]}),
            lines("c", "T", {"one": [(1, 1), (2, 1e4)]}, log=True),
        ]
    )
    root = ElementTree.fromstring(found)
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert {"a < b", "c", "one", "two", "0.5", "4"} <= set(texts)
    assert len([node for node in root.iter() if node.get("stroke-width")]) == 3
    labels = {node.text: float(node.get("y", 0)) for node in root[1].iter() if node.text in ("one", "two")}
    assert abs(labels["one"] - labels["two"]) >= 13, "one label lies on the other"


def test_every_evaluation_can_be_run_by_name():
    for name in evals.EVALS:
        assert callable(__import__(f"research.evals.{name.replace('-', '_')}", fromlist=["measure"]).measure)
    assert CliRunner().invoke(app, ["eval", "nonsense"]).exit_code == 1
    refused = CliRunner().invoke(app, ["eval", "top-w", "--plot", "x.svg"])
    assert refused.exit_code == 1
    assert "--plot changes nothing in top-w" in refused.stderr


def test_the_documentation_names_every_rule_flag_and_mode():
    for entry in CATALOG.values():
        if entry.name != "none":
            assert f"`{entry.name}`" in DOCS or f"`{entry.name}`," in DOCS, entry.name
        for control in entry.controls:
            if control.main:
                assert f"--{control.flag}" in DOCS, control.flag
    for mode in MODES:
        assert f"| {mode} |" in DOCS
        for control in MODE_CONTROLS.get(mode, ()):
            assert f"`--{control.flag}`" in DOCS
