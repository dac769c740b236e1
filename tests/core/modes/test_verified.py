"""Drafts checked in one tree pass; the evaluations and the commands around speculation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TableModel

from app.cli.calibrate import cut
from core.autocomplete import CompleteOptions
from core.drafting.judge import Judge
from core.errors import InputError
from core.models import gguf_file
from core.models.chat import chat_template
from core.models.hf_tokenizer import from_gguf
from core.models.load import default_model_path
from core.modes.checked import Refined, verified
from core.modes.checked import _open_rows as _rows
from core.modes.checked import depths_to_check as _depths_to_check
from core.speculative import Calibration, CalibrationError, NgramDrafter, TargetSampling, Token
from core.speculative.calibration import Bucket, Constants, fingerprint
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head
from core.speculative.generate import How
from core.speculative.target import softmax
from core.superposed import superpose
from measure.evals import arc_risk, lossless
from measure.evals.verified import KS, MethodRun, judged, logprobs, methods
from measure.options import EvalOptions
from measure.prompts import prompts
from measure.scores import Score
from training.calibration import calibrate, collect

MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]
STRICT = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e-9))

drafts = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=4)


def test_the_evaluation_takes_the_probabilities_of_the_target() -> None:
    sequence = MODEL.open()
    ids = list(TEXT)
    for token, logprob in zip([3, 3, 4], logprobs(sequence, TEXT, [3, 3, 4]), strict=True):
        assert logprob == pytest.approx(math.log(softmax(MODEL.after(ids).numpy())[token]), abs=1e-6)
        ids.append(token)
    assert sequence.inputs == TEXT


def test_the_report_has_the_perplexity_of_the_drafts_tokens() -> None:
    runs = {
        (name, k): MethodRun([Score("text", 1, 1, 0.0, 2.0)], [3], [math.log(0.5), math.log(0.125)])
        for k in KS
        for name in methods(MODEL, MODEL, None, k)
    }
    assert [row["perplexity"] for row in judged(runs).rows] == pytest.approx([4.0] * len(runs))


# --- refining


class Twice:
    """N-grams that know one thing: after 1, what the model holds likely comes in the opposite order."""

    def scores(self, logq: np.ndarray, contexts: list[list[int]], candidates: np.ndarray) -> np.ndarray:
        turned = -logq
        return np.where(np.array([c[-1] == 1 for c in contexts])[:, None], turned, logq)

    def scores_without(self, logq, contexts, candidates):
        return (self.scores(logq, contexts, candidates),) * 2

    def proposals(self, contexts, least, known=()) -> list[list[int]]:
        return [[] for _ in contexts]

    def knows(self, ids) -> bool:
        return False


@settings(max_examples=60)
@given(
    seed=st.integers(0, 30),
    k=st.integers(1, 5),
    length=st.integers(1, 9),
    first=st.one_of(st.none(), st.integers(1, 9)),
    exact_steps=st.integers(0, 2),
    mixed=st.booleans(),
)
def test_looked_at_to_the_end_drafts_are_those_of_branching_greedy(
    seed: int, k: int, length: int, first: int | None, exact_steps: int, mixed: bool
) -> None:
    model = TableModel(vocabulary=12, seed=seed, spread=2)
    options: dict[str, Any] = {"ngrams": _mixing() if mixed else None}
    *_, branching = superpose(model, TEXT, k, length, forks=0, exact_steps=length - 1, **options)
    sequence = model.open()
    *_, last = verified(
        model,
        TEXT,
        k,
        length,
        sequence=sequence,
        first=first,
        rounds=length,
        nodes=10**6,
        exact_steps=exact_steps,
        **options,
    )
    assert sorted(last.ids) == sorted(branching.ids)
    assert last.sure == [length] * len(last.ids)
    assert sequence.inputs == TEXT


def _mixing() -> Any:
    """The rule as `superpose` takes it."""
    from core.ngram.interpolation import Interpolation

    return type("Mixing", (Twice, Interpolation), {})()


@settings(max_examples=60)
@given(seed=st.integers(0, 30), nodes=st.integers(0, 12), rounds=st.integers(1, 3), first=st.integers(1, 7))
def test_rows_keep_their_order_and_what_is_sure(seed: int, nodes: int, rounds: int, first: int) -> None:
    """A row's beginning up to `changed` was shown before; what is sure stays; each round feeds at most `nodes`."""
    model = TableModel(vocabulary=12, seed=seed, spread=2)
    shown: Refined | None = None
    for found in verified(model, TEXT, 3, 7, first=first, rounds=rounds, nodes=nodes):
        assert len({ids[0] for ids in found.ids}) == len(found.ids)
        if found.checked:
            assert shown is not None
            assert found.fed <= nodes
            for new, old, changed, sure in zip(found.ids, shown.ids, found.changed, shown.sure, strict=True):
                assert new[:changed] == old[:changed]
                assert new[changed : changed + 1] != old[changed : changed + 1] or changed == len(old)
                assert new[:sure] == old[:sure]
                assert len(new) == 7
            assert all(a >= b for a, b in zip(found.sure, shown.sure, strict=True))
        shown = found


def test_what_is_sure_is_what_the_target_says_one_by_one() -> None:
    for seed in range(10):
        model = TableModel(vocabulary=12, seed=seed, spread=2)
        *_, last = verified(model, TEXT, 4, 8, nodes=10, rounds=2)
        for ids, sure in zip(last.ids, last.sure, strict=True):
            assert sure >= 1
            for at in range(1, sure):
                assert ids[at] == int(model.after(TEXT + ids[:at]).argmax())


def test_tokens_are_looked_at_where_the_text_is_likeliest_to_go() -> None:
    drafts = Refined([[1, 2, 3, 4], [5, 6, 7, 8]], [-1.0, -9.0], [1, 1], [0, 0], False)
    rows = _rows(drafts, None, None)
    assert _depths_to_check(rows, 0) == [0, 0]
    assert _depths_to_check(rows, 2) == [2, 0]
    assert _depths_to_check(rows, 4) == [3, 1]  # all of the first: its last token decides nothing
    assert _depths_to_check(rows, 99) == [3, 3]
    sure = _rows(drafts, None, [3, 1])  # of the first only one token is open, and three have to be fed for it
    assert _depths_to_check(sure, 2) == [0, 2]


def test_another_model_checks_what_one_drafted() -> None:
    drafting, checking = TableModel(vocabulary=12, seed=1, spread=2), TableModel(vocabulary=12, seed=2, spread=2)
    held, target = drafting.open(), checking.open()
    *_, last = verified(drafting, TEXT, 3, 6, sequence=held, target=target, rounds=6, nodes=99)
    for ids, sure in zip(last.ids, last.sure, strict=True):
        assert sure == 6
        # Exact steps are the drafting model's, which is taken at its word for them.
        assert ids[2:] == _greedy(checking, TEXT + ids[:2], 4)
    assert held.inputs == target.inputs == TEXT
    with pytest.raises(InputError, match="different tokenizers"):
        list(verified(drafting, TEXT, 3, 6, target=TableModel(vocabulary=11).open()))


def _greedy(model: TableModel, ids: list[int], n: int) -> list[int]:
    for _ in range(n):
        ids = [*ids, int(model.after(ids).argmax())]
    return ids[-n:]


def test_an_end_ends_a_draft() -> None:
    model = TableModel(vocabulary=12, seed=4, spread=2)
    *_, free = verified(model, TEXT, 3, 8, rounds=8, nodes=99)
    stop = free.ids[0][3]
    *_, last = verified(model, TEXT, 3, 8, rounds=8, nodes=99, stop_ids=frozenset({stop}))
    for ids in last.ids:
        assert stop not in ids[:-1]
        assert len(ids) == 8 or ids[-1] == stop


def test_stopping_between_rounds_leaves_the_text() -> None:
    model = TableModel(vocabulary=12, seed=4, spread=2)
    sequence = model.open()
    for after in range(1, 9):
        drafts = verified(model, TEXT, 3, 6, sequence=sequence, rounds=3)
        for _ in range(after):
            next(drafts)
        drafts.close()
        assert sequence.inputs == TEXT


def test_the_judge_counts_the_n_grams_in() -> None:
    judge, turned = Judge(candidates=6), Judge(_mixing(), candidates=6)
    after_1, after_2 = MODEL.after([0, 1]), MODEL.after([0, 2])
    logits, contexts = [after_1, after_2], [[0, 1], [0, 2]]
    assert [own for own, _, _ in judge(logits, contexts, [0, 0])] == [int(x.argmax()) for x in logits]
    assert [own for own, _, _ in turned(logits, contexts, [0, 0])] == [int(after_1.argmin()), int(after_2.argmax())]
    for (_, own, asked), x in zip(judge(logits, contexts, [3, 3]), logits, strict=True):
        logp = x.double() - x.double().logsumexp(0)
        assert own == pytest.approx(float(logp.max()), abs=1e-6)
        assert asked == pytest.approx(float(logp[3]), abs=1e-6)


# --- evaluations


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


def audited(calibration: Calibration, seeds: int) -> list[arc_risk.Audited]:
    every = (arc_risk.audited(MODEL, calibration, NgramDrafter(), TEXT * 3, seed) for seed in range(seeds))
    return [proposal for proposals, _ in every for proposal in proposals]


def test_bounds_are_audited_against_the_divergence_itself() -> None:
    loose = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e12))
    tight = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e-9, 1e-9, 1e-3))
    for calibration, covered in ((loose, True), (tight, False)):
        found = audited(calibration, 6)
        others = [a for a in found if not a.best]
        assert others
        assert all(0 <= a.js <= math.log(2) + 1e-9 for a in found)
        assert all((a.js <= a.bound) == covered for a in others if a.js > 1e-6)
        said = arc_risk.summary(found)
        assert said["accepted"] == len(found)
        assert said["low"] <= said["coverage"] <= said["high"] + 1e-9


def test_each_proposal_is_audited_with_the_constants_of_its_depth() -> None:
    """With `calibrate --buckets` constants differ by depth: 1 at the first token of a tree, 2 at the second, else 3."""
    by_depth = [Bucket(2.0, depth, Constants(1e9, 1e9, depth), 1e9) for depth in (1, 2)]
    calibration = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 3.0), by_depth)
    found = audited(calibration, 9)
    others = [a for a in found if not a.best]
    assert {0, 2} <= {a.depth for a in others}
    assert all(a.tolerance == min(a.depth + 1, 3) for a in others)


def test_bounds_are_audited_at_each_temperature_that_is_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e12), temperature=1.5)

    def calibrated(model: object, sampling: TargetSampling) -> Calibration:
        if sampling.overall_temperature != 1.5:
            raise CalibrationError(f"not at T = {sampling.overall_temperature:g}")
        return warm

    class Kept(TableModel):
        """Stays open, because other tests use it."""

        def close(self) -> None: ...

    for name, found in (
        ("load_model", Kept()),
        ("base_stores", []),
        ("chat_template", None),
        ("prompts", {"letters": [TEXT * 3]}),
    ):
        monkeypatch.setattr(arc_risk, name, lambda *_, found=found: found)
    monkeypatch.setattr(arc_risk, "for_model", calibrated)
    rows = arc_risk.measure(EvalOptions(), lambda _: None).rows
    assert [(row["T"], row.get("left out")) for row in rows] == [
        (0.5, "not at T = 0.5"),
        (1.0, "not at T = 1"),
        (1.5, None),
    ]
    assert rows[-1]["coverage"] == 1.0
    with pytest.raises(CalibrationError, match=r"at T = 0\.5"):
        arc_risk.audited(MODEL, warm, NgramDrafter(), TEXT, 0, temperature=0.5)


def test_the_depth_of_a_token_is_counted_from_the_pass_that_gave_it() -> None:
    hows: list[How] = ["plain", "accepted", "tolerated", "bonus", "corrected", "accepted", "corrected", "accepted"]
    tokens = [Token(0, how, 0.0) for how in hows]
    assert arc_risk.depths(tokens) == {1: 0, 2: 1, 5: 0, 7: 0}


def test_a_calibration_is_measured_on_passages_of_a_text(tmp_path: Path) -> None:
    file = tmp_path / "letters.txt"
    file.write_text("abcdef" * 400)
    passages = cut(MODEL.tokenizer, file, 5)
    assert len(passages) == 5
    assert all(32 <= len(p) <= 128 for p in passages)
    made = calibrate(MODEL, collect(MODEL, passages), prompts=len(passages))
    assert made.check(MODEL).prompts == 5
    file.write_text("ab")
    with pytest.raises(InputError, match="longer text"):
        cut(MODEL.tokenizer, file, 5)


def test_prompts_are_read_by_kind(tmp_path: Path, llama_model) -> None:
    ours = prompts(None, llama_model.tokenizer, 2)
    assert set(ours) == {"chat", "code", "maths", "tasks"}
    assert all(len(of_kind) == 2 for of_kind in ours.values())
    (tmp_path / "one.jsonl").write_text(json.dumps({"turns": ["Hello there"]}) + "\n")
    assert list(prompts(tmp_path, llama_model.tokenizer)) == ["one"]
    (tmp_path / "one.jsonl").write_text('{"turns": ["Hello"]}\n{"turn": 1}\n')
    with pytest.raises(InputError, match="Line 2"):
        prompts(tmp_path, llama_model.tokenizer)
    (tmp_path / "one.jsonl").write_text('{"turns": ["Hello"]}\n\n')
    with pytest.raises(InputError, match="Line 2"):  # not the line before, which is a prompt
        prompts(tmp_path, llama_model.tokenizer)
    with pytest.raises(InputError, match="cannot be read"):
        prompts(tmp_path / "none.jsonl", llama_model.tokenizer)


def test_an_instruction_model_gets_prompts_in_its_chat_template(tmp_path: Path) -> None:
    """As appendix A.4 of the ARC-Decode paper has them: a system prompt, and four examples before a sum."""
    fields = gguf_file.read(default_model_path()).fields
    tokenizer = from_gguf(fields, 49152)
    chat = chat_template("default")
    assert tokenizer is not None and chat is not None
    for kind in ("mt_bench", "gsm8k", "humaneval", "other"):
        (tmp_path / f"{kind}.jsonl").write_text(json.dumps({"turns": ["What is it?"]}) + "\n")
    found = prompts(tmp_path, tokenizer, None, chat)
    names = {i: name for name, i in chat.names.items()}
    texts = {
        kind: "".join(names[i] if i in names else tokenizer.decode([i]) for i in ids) for kind, (ids,) in found.items()
    }
    ask = "<|im_end|>\n<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
    assert texts["mt_bench"] == f"<|im_start|>system\nYou are a helpful, respectful and honest assistant.{ask}"
    assert "function bodies only" in texts["humaneval"] and texts["humaneval"].endswith(ask)
    assert texts["other"].endswith(ask) and "respectful" not in texts["other"]
    assert texts["gsm8k"].count("<|im_start|>assistant\n") == 5
    assert texts["gsm8k"].count("Let's think step by step\nAnswer:<|im_end|>") == 5
    assert texts["gsm8k"].endswith(
        "Question: What is it?\nLet's think step by step\nAnswer:" + ask[ask.index("?") + 1 :]
    )
    assert prompts(tmp_path, tokenizer)["other"] == [tokenizer.encode("What is it?\n\n")]


def test_a_long_prompt_loses_its_beginning_and_not_the_template(tmp_path: Path) -> None:
    tokenizer = from_gguf(gguf_file.read(default_model_path()).fields, 49152)
    assert tokenizer is not None
    (tmp_path / "alpaca.jsonl").write_text(json.dumps({"turns": ["first " + "word " * 900 + "last"]}) + "\n")
    ((ids,),) = prompts(tmp_path, tokenizer, None, chat_template("default")).values()
    text = tokenizer.decode(ids)
    assert text.startswith("system\nYou are a helpful, respectful")
    assert "first" not in text and text.endswith("last\nassistant\n")


def test_a_model_without_a_chat_template_gets_plain_prompts(tiny_folder: Callable[[str], Path]) -> None:
    assert chat_template(str(tiny_folder("compiled llama"))) is None


def test_the_default_model_on_torch_says_the_same_with_and_without(torch_model) -> None:
    """A trimmed set: the whole one is `polydraft eval lossless --text …`."""
    drafters = [NgramDrafter(), Eagle3Drafter(Eagle3Head.load(DEFAULT_HEAD), torch_model)]
    try:
        for of_kind in prompts(None, torch_model.tokenizer, 1).values():
            for temperature in (0, 1):
                found = lossless.compared(torch_model, drafters, of_kind[0], temperature, length=24)
                assert all(one.same for one in found), found
    finally:
        torch_model.watch(())


# --- while someone types


@pytest.mark.parametrize("text", ["The quick brown fox ", "She was writ", "I would like to thank you for the inv"])
def test_drafts_of_a_session_are_refined_in_their_rows(autocomplete, text: str) -> None:
    """After the superposed drafts one pass looks; beginnings stay, rows stay, and so does the cached text."""
    session = autocomplete.open()
    completion = session.complete(text, options=CompleteOptions(verify=12, k=3, length=8))
    shown, fed = [], []
    while rows := completion.rows():
        shown.append((completion.checked, [(d.id, d.text) for d in completion.drafts]))
        fed.append(rows[0].parents is not None)
        completion.advance(autocomplete.model.forward(rows))
    assert completion.done and completion.checked
    assert sum(fed) == 1  # one tree
    before = next(drafts for checked, drafts in shown if checked)
    after = [(d.id, d.text) for d in completion.drafts]
    assert {i for i, _ in after} <= {i for i, _ in before}
    first = dict(before)
    for i, new in after:
        least = min(len(new), len(first[i]), 2)
        assert new[:least] == first[i][:least]
    held = list(session.sequence.inputs)
    completion.close()
    assert session.sequence.inputs == held and None not in held
    plain = session.complete(text, options=CompleteOptions(k=3, length=8))
    while rows := plain.rows():
        plain.advance(autocomplete.model.forward(rows))
    assert not plain.checked
    session.close()


def test_a_refinement_may_be_stopped_between_any_two_passes(autocomplete) -> None:
    session = autocomplete.open()
    for stop in (2, 6, 7, 8, 10):
        completion = session.complete(
            "The old man looked at the sea and", options=CompleteOptions(verify=12, k=3, length=6)
        )
        for _ in range(stop):
            if rows := completion.rows():
                completion.advance(autocomplete.model.forward(rows))
        completion.close()
        assert None not in session.sequence.inputs
    session.close()
