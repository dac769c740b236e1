"""The rules: equal to transformers where it has them, the papers' theorems by brute force, and every odd row."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.errors import InputError
from core.samplers import (
    DRY,
    XTC,
    Chain,
    Eta,
    Greedy,
    MinP,
    Mirostat,
    PLess,
    Temperature,
    TopH,
    TopK,
    TopNSigma,
    TopP,
    TopW,
    Typical,
)
from core.samplers.catalog import sampler
from core.samplers.dry import breakers
from core.samplers.mirostat import OF_ZIPF
from tests.table_model import Letters

pytestmark = pytest.mark.usefixtures("one_thread")

INF = float("inf")
ANY = [
    Temperature(1.5),
    TopK(5),
    TopP(0.9),
    MinP(0.1),
    PLess(),
    XTC(0.1, 1.0),
    DRY(),
    TopNSigma(1.0),
    TopW(metric="uniform"),
    TopH(0.4),
    Typical(0.9),
    Eta(9e-4),
    Mirostat(),
    Greedy(),
    Chain([Temperature(1.5), TopP(0.9)]),
]
NAMES = [f"{rule.title}{i}" for i, rule in enumerate(ANY)]
every_rule = pytest.mark.parametrize("rule", ANY, ids=NAMES)


def kept(rule, row) -> list[int]:
    """Ids that the rule keeps of one row."""
    out = rule(None, torch.as_tensor(row, dtype=torch.float64)[None])[0]
    return torch.nonzero(out > -INF).flatten().tolist()


def rows(minimum: int = 2, maximum: int = 9):
    return st.lists(st.floats(-8, 8, allow_subnormal=False), min_size=minimum, max_size=maximum, unique=True)


# --- equal to transformers --------------------------------------------------------------------------------


def peers():
    from transformers.generation import logits_process as hf

    return [
        (Temperature(1.7), hf.TemperatureLogitsWarper(1.7)),
        (TopK(50), hf.TopKLogitsWarper(50)),
        (TopP(0.9), hf.TopPLogitsWarper(0.9)),
        (TopP(0.3), hf.TopPLogitsWarper(0.3)),
        (MinP(0.1), hf.MinPLogitsWarper(0.1)),
        (Typical(0.9), hf.TypicalLogitsWarper(0.9)),
        (Typical(0.2), hf.TypicalLogitsWarper(0.2)),
        (Eta(9e-4), hf.EtaLogitsWarper(9e-4)),
    ]


def test_a_thousand_random_rows_are_cropped_as_by_transformers():
    chance = torch.Generator().manual_seed(1)
    for deviation in (0.5, 1.0, 2.0, 4.0, 8.0):
        logits = torch.randn(200, 60, generator=chance, dtype=torch.float64) * deviation
        for place, (ours, theirs) in enumerate(peers()):
            # Two values of a rule that takes a row at a time share the rows.
            rows = logits[place % 2 :: 2] if isinstance(ours, TopP | Typical) else logits
            assert torch.equal(ours(None, rows), theirs(None, rows)), ours.title


def test_generate_takes_a_rule():
    """In transformers: model.generate(..., logits_processor=[TopW(...)])."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=300, **sizes)).eval()
    table = model.get_input_embeddings().weight
    ids = torch.tensor([[5, 17, 250], [9, 8, 7]])
    common = {"max_new_tokens": 8, "pad_token_id": 0, "eos_token_id": None}
    greedy = model.generate(ids, do_sample=False, **common)
    single = TopW(table, beta=2.2)  # β = λ: one token, so that sampling is greedy
    assert torch.equal(model.generate(ids, do_sample=True, logits_processor=[single], **common), greedy)
    for rule in (
        TopW(table, lam=0.5, warm_start=0.3),
        TopP(0.5),
        Mirostat(),
        Chain([Temperature(2.0), TopNSigma(1.0)]),
    ):
        drawn = model.generate(ids, do_sample=True, logits_processor=[rule], **common)
        allowed = type(rule)() if isinstance(rule, Mirostat) else rule
        for n in range(3, drawn.shape[1]):
            kept = allowed(drawn[:, :n], model(drawn[:, :n]).logits[:, -1])
            assert bool((kept.gather(1, drawn[:, n : n + 1]) > -INF).all())


def test_the_high_level_llama_takes_a_rule(tiny_default, monkeypatch):
    """In llama-cpp-python: llama(..., logits_processor=LogitsProcessorList([TopK(1)]))."""
    import llama_cpp
    from llama_cpp import llama_cpp as lib

    plain = lib.llama_model_default_params

    def without_amx():
        params = plain()
        params.use_extra_bufts = False
        return params

    monkeypatch.setattr(lib, "llama_model_default_params", without_amx)
    llama = llama_cpp.Llama(str(tiny_default), n_ctx=64, verbose=False)
    prompt = "The capital of France is"
    rules = llama_cpp.LogitsProcessorList([Greedy()])
    text = llama(prompt, max_tokens=6, temperature=2.0, seed=3, logits_processor=rules)["choices"][0]["text"]
    assert text == llama(prompt, max_tokens=6, temperature=0)["choices"][0]["text"]
    llama.close()


# --- every rule on every row ------------------------------------------------------------------------------


@every_rule
@settings(max_examples=12)
@given(data=st.data())
def test_something_is_kept_and_nothing_is_made_up(rule, data):
    values = st.floats(-50, 50) | st.sampled_from([-INF, INF, math.nan, 0.0, 1.0])
    width = data.draw(st.integers(1, 12))
    made = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=4))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        logits = torch.tensor(made, dtype=dtype)
        before = logits.clone()
        out = rule(None, logits)
        assert torch.equal(logits, before) or bool(logits.isnan().any())
        assert out.shape == logits.shape
        assert out.dtype == dtype
        assert not bool(out.isnan().any() | out.isposinf().any())
        for row, cropped in zip(logits, out, strict=True):
            number = row[~row.isnan()]
            if len(number) == 0 or bool(number.isneginf().all()):
                assert bool(cropped.isneginf().all())
                continue
            assert bool((cropped > -INF).any())
            assert not bool((cropped > -INF)[row.isnan() | row.isneginf()].any())
            if bool(row.isposinf().any()):
                assert bool((cropped > -INF)[~row.isposinf()].logical_not().all())
            elif not isinstance(rule, Temperature | Chain):
                assert torch.equal(cropped[cropped > -INF], row[cropped > -INF])


@every_rule
def test_rows_of_a_batch_are_cropped_as_alone(rule):
    chance = torch.Generator().manual_seed(2)
    logits = torch.randn(6, 60, generator=chance) * 3
    logits[2, 7] = math.nan
    logits[3, 5] = INF
    together = rule(None, logits)
    for row, out in zip(logits, together, strict=True):
        assert torch.equal(rule(None, row[None])[0], out)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
@every_rule
def test_rows_on_a_gpu_are_cropped_as_on_the_cpu(rule):
    logits = torch.randn(6, 60, generator=torch.Generator().manual_seed(2)) * 3
    out = rule(None, logits.to("cuda"))
    assert out.device.type == "cuda"
    assert torch.equal(out.cpu() > -INF, rule(None, logits) > -INF)


@every_rule
def test_a_numpy_row_is_cropped_as_a_tensor(rule):
    row = np.random.default_rng(0).normal(size=40).astype(np.float32)
    out = rule(None, row)
    assert isinstance(out, np.ndarray)
    assert np.array_equal(out, rule(None, torch.from_numpy(row)[None])[0].numpy())


@pytest.mark.parametrize(
    ("rule", "equal", "one_hot", "single"),
    [
        (TopK(3), 8, 8, 1),  # all that tie with the third
        (TopP(0.0), 1, 1, 1),
        (TopP(0.5), 4, 1, 1),
        (MinP(0.1), 8, 1, 1),
        (PLess(), 8, 1, 1),
        (XTC(0.1), 8, 8, 1),
        (TopNSigma(1.0), 8, 1, 1),
        (TopH(0.4), 2, 3, 1),  # ln 2 ≤ 0.4 · ln 8 < ln 3; and 2 of 7 equal shares of a tiny entropy
        (Typical(0.5), 8, 1, 1),
        (Eta(0.5), 8, 1, 1),
        (Mirostat(1.0), 8, 1, 1),  # a surprise of 3 bits, above 2τ; the likeliest stay, and that is all of them
        (Greedy(), 1, 1, 1),
        (TopW(metric="uniform"), 8, 1, 1),
    ],
)
def test_flat_one_hot_and_single_rows(rule, equal, one_hot, single):
    assert len(kept(rule, [1.5] * 8)) == equal
    assert len(kept(rule, [100.0] + [0.0] * 7)) == one_hot
    assert len(kept(rule, [3.0])) == single


def test_parameters_can_differ_from_row_to_row():
    logits = (torch.randn(1, 300, generator=torch.Generator().manual_seed(3)) * 2).expand(3, -1)
    for rule, parameters in (
        (TopK, {"top_k": [1, 5, 400]}),
        (TopP, {"top_p": [0.1, 0.5, 1.0]}),
        (MinP, {"min_p": [0.0, 0.1, 1.0]}),
        (TopNSigma, {"n": [0.0, 1.0, 3.0]}),
        (TopH, {"alpha": [0.1, 0.4, 1.0]}),
        (Typical, {"mass": [0.1, 0.5, 1.0]}),
        (Eta, {"epsilon": [0.001, 0.01, 0.5]}),
        (XTC, {"threshold": [0.01, 0.05, 0.5]}),
        (Mirostat, {"tau": [1.0, 2.0, 4.0]}),
        (Temperature, {"temperature": [0.5, 1.0, 4.0]}),
        (TopW, {"beta": [2.0, 3.0, 6.0], "lam": [2.2, 2.2, 1.0], "metric": ["uniform"] * 3}),
    ):
        many = {name: values[0] if name == "metric" else values for name, values in parameters.items()}
        for n, row in enumerate(rule(**many)(None, logits)):
            one = rule(**{name: values[n] for name, values in parameters.items()})
            assert torch.equal(row, one(None, logits[:1])[0]), rule.title
    with pytest.raises(InputError, match="2 values given for 3 rows"):
        TopP([0.1, 0.2])(None, logits)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TopP(1.5), "top_p 1.5 given; at least 0 and at most 1 expected"),
        (lambda: Temperature(0), "temperature 0 given; above 0 expected"),
        (lambda: TopK(0), "top_k 0 given; at least 1"),
        (lambda: TopH(float("nan")), "alpha nan given"),
        (lambda: TopW(), "the model's .V, D. expected for the metric 'l2'"),
        (lambda: TopW(metric="manhattan"), "metric 'manhattan' given; one of l2, whitened, cosine, uniform"),
        (lambda: TopW(metric="uniform", top_m=0), "top_m 0 given; at least 1"),
        (lambda: TopW(metric="uniform", potential="magnetic"), "potential 'magnetic' given; one of attractive, none,"),
        (lambda: TopP(0.5)(None, torch.zeros(4)), r"shape \(4,\) given; \(rows, vocabulary\)"),
    ],
)
def test_what_is_out_of_range_is_named(make, said):
    with pytest.raises(InputError, match=said):
        make()


# --- what each rule promises ------------------------------------------------------------------------------


@settings(max_examples=80)
@given(rows(2, 30), st.floats(0.1, 5), st.floats(0.0, 3.0))
def test_top_n_sigma_keeps_the_same_tokens_at_every_temperature(row, t, n):
    logits = torch.tensor(row, dtype=torch.float64)
    edge = logits.max() - n * logits.std()
    if bool(((logits - edge).abs() < 1e-9).any()):
        return  # on the very edge, rounding decides
    cold = kept(TopNSigma(n), row)
    assert cold == torch.nonzero(logits >= edge).flatten().tolist()
    assert cold == kept(Chain([Temperature(t), TopNSigma(n)]), row)


def test_dropped_tokens_do_not_enter_the_deviation():
    row = [5.0, 4.0, 3.0, 1.0]
    assert kept(TopNSigma(1.0), [*row, -INF, -INF]) == kept(TopNSigma(1.0), row)
    assert kept(TopNSigma(1.0), [*row, -500.0]) != kept(TopNSigma(1.0), row)


@settings(max_examples=80)
@given(rows(), st.floats(0.05, 0.95))
def test_top_h_is_the_longest_run_within_its_entropy(row, alpha):
    p = torch.tensor(row, dtype=torch.float64).softmax(0).sort(descending=True).values
    entropy = [_entropy(p[:n] / p[:n].sum()) for n in range(1, len(row) + 1)]
    assert entropy == sorted(entropy)  # so the first one too many ends the run
    if min(abs(h - alpha * entropy[-1]) for h in entropy) < 1e-9:
        return
    assert len(kept(TopH(alpha), row)) == max(1, sum(h <= alpha * entropy[-1] for h in entropy))


def _entropy(q: torch.Tensor) -> float:
    return float(-(q * q.log()).sum())


@settings(max_examples=80)
@given(rows())
def test_p_less_keeps_what_is_at_least_as_probable_as_two_equal_samples(row):
    p = np.exp(np.array(row) - max(row))
    p /= p.sum()
    threshold = sum(p_i**2 for p_i in p)
    if abs(p - threshold).min() > 1e-12:  # on the very edge, rounding decides
        assert kept(PLess(), row) == [i for i, p_i in enumerate(p) if p_i >= threshold]


@settings(max_examples=80)
@given(rows(), st.floats(0.02, 0.5))
def test_xtc_drops_all_viable_tokens_but_the_least_probable(row, threshold):
    """As the source: of the tokens in descending order, all those before the last one at or above the threshold."""
    p = np.exp(np.array(row) - max(row))
    p /= p.sum()
    if abs(p - threshold).min() < 1e-12 or abs(np.diff(np.sort(p))).min() < 1e-12:
        return
    order = sorted(range(len(row)), key=lambda i: -p[i])
    last = max((n for n, i in enumerate(order) if p[i] >= threshold), default=0)
    assert kept(XTC(threshold), row) == sorted(order[last:])


@settings(max_examples=80)
@given(rows(), st.sets(st.integers(0, 12), max_size=3), st.floats(0.02, 0.5))
def test_xtc_leaves_places_alone_where_a_line_or_the_text_may_end(row, ends, threshold):
    """As the source: "if newline or EOS tokens would be removed, return the original scores"."""
    without = kept(XTC(threshold), row)
    dropped = {*range(len(row))} - {*without}
    expected = [*range(len(row))] if dropped & ends else without
    assert kept(XTC(threshold, ends=ends), row) == expected


def test_the_ends_of_a_vocabulary_are_line_ends_and_the_end_of_the_text():
    class Lines(Letters):
        def __init__(self):
            super().__init__(2)
            self.pieces, self.eos_ids = [b"a", b"\n", b" \n\n", b"x\n", b" ", b""], frozenset({5})

    assert Lines().ends == {1, 2, 5}


def test_xtc_drops_at_its_share_of_the_places_and_at_the_same_ones_each_time():
    ids = torch.arange(4000).reshape(1000, 4)
    logits = torch.tensor([[2.0, 1.9, 1.0, -3.0]]).expand(1000, -1)
    for share in (0.0, 0.25, 1.0):
        out = XTC(0.1, share)(ids, logits)
        dropped = (out == -INF).any(1)
        assert dropped.float().mean() == pytest.approx(share, abs=0.05)
        assert torch.equal(XTC(0.1, share)(ids, logits), out)
    # Texts with the same last token differ.
    assert len({float(row.sum()) for row in XTC(0.1, 0.5)(torch.tensor([[n, 1] for n in range(40)]), logits[:40])}) == 2


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 3), max_size=14),
    st.floats(0, 3),
    st.floats(1, 3),
    st.integers(1, 4),
    st.frozensets(st.integers(0, 3), max_size=2),
)
def test_dry_takes_the_penalty_of_the_longest_repetition(ids, multiplier, base, allowed, ends):
    """By all pairs of an earlier end and a length."""
    row, expected = np.arange(5.0), np.arange(5.0)
    for token in set(range(4)) - ends:
        lengths = [
            n
            for n in range(1, len(ids))
            for at in range(n, len(ids))
            if ids[at] == token and ids[at - n : at] == ids[-n:] and not ends & set(ids[-n:])
        ]
        if lengths and max(lengths) >= allowed:
            expected[token] -= multiplier * base ** (max(lengths) - allowed)
    found = DRY(multiplier, base, allowed, ends)(torch.tensor([ids], dtype=torch.long), torch.from_numpy(row)[None])
    assert found[0].numpy() == pytest.approx(expected)


def test_dry_comes_before_the_temperature_where_it_is_the_first():
    titles = [[rule.title for rule in sampler(chain, {}, 2.0).rules] for chain in ("dry+min-p", "min-p+dry")]
    assert titles == [["DRY", "temperature", "min-p"], ["temperature", "min-p", "DRY"]]
    assert sampler("dry").title == "DRY"


def test_tokens_with_a_mark_are_breakers():
    assert breakers([b"a", b" b:", b"\n\n", b"", b'"c', b"d*"]) == {1, 2, 4, 5}


def test_mirostat_steers_the_surprise_to_its_target():
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 2000, generator=chance) * 1.5
    for tau, version in ((2.0, 2), (5.0, 1)):
        rule, ids, seen = Mirostat(tau, 0.1, version), torch.tensor([[0]]), []
        for _ in range(400):
            q = rule(ids, logits).softmax(-1)
            token = torch.multinomial(q, 1, generator=chance)
            seen.append(-math.log2(float(q[0, token])))
            ids = torch.cat([ids, token], 1)
        assert sum(seen[100:]) / 300 == pytest.approx(tau, abs=0.35)


@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
def test_mirostat_1_keeps_as_many_tokens_as_its_estimate_of_zipfs_law_says(spread):
    """Equation by equation, from the paper's algorithm 1."""
    logits = torch.randn(1, 700, generator=torch.Generator().manual_seed(7)) * spread
    tau, mu = 3.0, 6.0
    p = logits[0].double().softmax(0).sort(descending=True).values.tolist()
    t = [math.log((i + 2) / (i + 1)) for i in range(OF_ZIPF - 1)]
    b = [math.log(p[i] / p[i + 1]) for i in range(OF_ZIPF - 1)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    epsilon = s - 1
    k = int((epsilon * 2**mu / (1 - len(p) ** -epsilon)) ** (1 / s))
    kept = Mirostat(tau, 0.1, version=1)(torch.tensor([[0]]), logits)
    assert int(kept.isfinite().sum()) == max(k, 1)
    assert kept[0].argmax() == logits[0].argmax()


def test_mirostat_1_reads_what_another_rule_left():
    """One token, tokens of equal chance, and hardly any that are left."""
    one, alike, few = torch.tensor([[2.0]]), torch.zeros(1, 50), torch.full((1, 50), -INF)
    few[0, :2] = torch.tensor([1.0, 0.5])
    for logits in (one, alike, few):
        kept = Mirostat(3.0, 0.1, version=1)(None, logits)
        assert not kept.isnan().any()
        assert kept.isfinite().any()
        assert not (kept.isfinite() & logits.isneginf()).any()
    with pytest.raises(InputError, match="version 3 given"):
        Mirostat(version=3)


def test_dry_reads_as_many_of_the_last_tokens_as_it_is_told():
    ids, logits = torch.tensor([[1, 2, 3, 4, 5, 1, 2]]), torch.zeros(1, 8)  # "1 2" was followed by 3
    for last, penalised in ((None, True), (7, True), (5, False)):
        assert bool(DRY(0.8, 1.75, 2, last=last)(ids, logits)[0, 3] < 0) == penalised


def test_mirostat_knows_its_rows_by_their_ids():
    """Rows that change places keep their own μ, and a new text starts at 2τ."""
    logits = torch.randn(2, 500, generator=torch.Generator().manual_seed(4)) * 3
    ids = torch.tensor([[1, 2], [3, 4]])
    straight, crossed = Mirostat(3.0, 0.9), Mirostat(3.0, 0.9)
    first = straight(ids, logits)
    assert torch.equal(first, crossed(ids, logits))
    drawn = torch.stack([first[0].argmax(), torch.where(first[1] > -INF, -first[1], -INF).argmax()])
    longer = torch.cat([ids, drawn[:, None]], 1)
    after = straight(longer, logits)
    assert torch.equal(crossed(longer.flip(0), logits.flip(0)).flip(0), after)
    assert not torch.equal(after, first)
    assert torch.equal(Mirostat(3.0, 0.9)(longer, logits), first), "an unknown context begins anew"


# --- chains ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([TopP(0.5), TopP(0.9)], "top-p given twice"),
        ([Temperature(2.0), Greedy()], "greedy keeps one token in any case"),
        ([Mirostat(), TopK(5)], "mirostat controls the cut"),
        ([Temperature(2.0), TopW(metric="uniform", selection_temperature=2.0)], "two temperatures"),
    ],
)
def test_senseless_chains_are_refused_with_the_reason(rules, said):
    with pytest.raises(InputError, match=said):
        Chain(rules)


def test_surprising_chains_say_so():
    assert Chain([Temperature(2.0), TopP(0.9)]).notes == []
    assert "smaller" in Chain([TopP(0.9), TopNSigma(1.0)]).notes[0]
    assert "put top-p first" in Chain([TopK(40), TopP(0.9)]).notes[0]
    assert "among the remaining" in Chain([MinP(0.1), TopH()]).notes[0]
    assert Chain([TopP(0.9), TopK(40), MinP(0.1)]).notes == []
    assert "T = 1" in Chain([TopP(0.9), Temperature(2.0)]).notes[0]
    Chain([Temperature(1.5), Mirostat()])  # fine


@settings(max_examples=40)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12, unique=True), st.integers(1, 8), st.floats(0.05, 0.95))
def test_a_chain_renormalises_between_top_k_and_top_p(row: list[float], k: int, p: float) -> None:
    """As transformers' warpers one after the other. Top-p first keeps exactly the intersection; top-k first may keep
    less, never more."""
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    logits = torch.tensor([row], dtype=torch.float64)

    def kept(rule: Callable[..., Tensor]) -> set[int]:
        return set(rule(torch.zeros(1, 1, dtype=torch.long), logits).isfinite().nonzero()[:, 1].tolist())

    both = kept(TopK(k)) & kept(TopP(p))
    assert kept(Chain([TopP(p), TopK(k)])) == both
    assert kept(Chain([TopK(k), TopP(p)])) <= both
    warped = [TopKLogitsWarper(k), TopPLogitsWarper(p)]
    assert kept(Chain([TopK(k), TopP(p)])) == kept(lambda ids, x: warped[1](ids, warped[0](ids, x)))
