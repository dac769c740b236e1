"""Training on prose: text is chosen as the recipe says, a stopped training gives the same adapter, every family is
trained, and authors who are set aside train nothing."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_families import FAMILIES, VOCAB, file_of, module_of
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from core.healing import Healer
from core.models import gguf_file, hf, hf_tokenizer, load_model
from core.models.adapter import PROJECTIONS, Adapter, Result, load
from core.models.tokenizer import Tokenizer
from research.training import prose
from research.training.instructions import beginnings_of_messages
from research.training.prose import ProseOutcome, ProseRecipe, ProseStage
from tests.paths import ROOT
from training.adapter import AdapterRecipe, Student, mean_adapter
from training.texts import NamedText, named

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = AdapterRecipe(rank=2, places=tuple(PROJECTIONS), length=64, batch=2, rate=1e-2)
FEW = ProseRecipe(tokens=12 * 64, adapter=QUICK)


@pytest.fixture(scope="module")
def tokenizer(default_gguf: Path) -> Tokenizer:
    file = gguf_file.read(default_gguf)
    found = hf_tokenizer.from_gguf(file.fields, file.tensors["token_embd.weight"].shape[0])
    assert found is not None
    return found


def story(count: int, seed: int = 0) -> str:
    """So many words."""
    words = ("morning", "harbour", "quietly", "and", "the", "yesterday", "unbelievable", "of", "remembering", "it")
    return " ".join(random.Random(seed).choices(words, k=count))


# ---------------------------------------------------------------- text


def test_ten_authors_are_set_aside_by_name_alone() -> None:
    names = prose.names_in(ROOT / "training" / "set_aside.json")
    assert len(set(names)) == 10
    assert all(name.startswith("standardebooks/") and name.count("/") == 1 and len(name) < 50 for name in names)


@settings(max_examples=100)
@given(name=st.text("ab/_.#", min_size=1, max_size=6), aside=st.text("ab/_.#", min_size=1, max_size=4))
def test_a_name_sets_aside_its_documents_and_no_others_that_begin_alike(name: str, aside: str) -> None:
    kept, counts = prose.without([NamedText("book", name, "text")], [aside])
    below = name == aside or any(name.startswith(aside + mark) for mark in "/_.#")
    assert (len(kept), counts) == (0 if below else 1, {aside: int(below)})


def test_names_are_those_of_lines_or_paths_and_kinds_those_of_subfolders_or_files(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "may.txt").write_text("Dear all")
    line = {"text": "Call me", "meta": {"name": "herman/whale"}}
    (tmp_path / "book-00000.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({"text": "No name", "meta": 3}))
    found = {each.text: (each.kind, each.name) for each in named([tmp_path])}
    assert found == {
        "Call me": ("book", "herman/whale"),
        "No name": ("book", "book-00000.jsonl"),
        "Dear all": ("letters", "letters/may.txt"),
    }


def test_kinds_take_turns_whatever_their_size_and_beginnings_have_their_share(tokenizer: Tokenizer) -> None:
    big = [NamedText("book", f"b{i}", f"Chapter {i} begins. " + story(900, i)) for i in range(30)]
    small = [NamedText("talk", f"t{i}", f"Hello, said {i}. " + story(12, i)) for i in range(4)]
    recipe = ProseRecipe(64 * 200, 0.5, 0.0, QUICK)
    ids, counted, counts = prose.pieces_of([*big, *small], tokenizer, recipe)
    assert (ids.shape, counts, counted.all()) == ((200, 64), {"book": 100, "talk": 100}, True)
    texts = [tokenizer.decode(row.tolist()).lstrip("\n") for row in ids]
    books, talks = texts[::2], texts[1::2]
    begun = Counter(text.partition(" begins")[0] for text in books if text.startswith("Chapter"))
    assert 30 <= sum(begun.values()) <= 70
    assert max(begun.values()) - min(begun.values()) <= 1  # each document in turn
    assert all("\n\nHello" in text for text in talks)  # short documents share a piece
    whole = "\n\n".join(each.text for each in big)
    assert all(part.strip() in whole for text in books for part in text.split("\n\n"))
    assert len({text for text in books if not text.startswith("Chapter")}) > 30
    again, *_ = prose.pieces_of([*big, *small], tokenizer, recipe)
    assert np.array_equal(ids, again)


def test_a_kind_with_a_weight_has_as_many_pieces_more(tokenizer: Tokenizer) -> None:
    texts = [NamedText(kind, kind, story(900, i)) for i, kind in enumerate(("book", "docs", "talk"))]
    recipe = ProseRecipe(64 * 50, 0.5, 0.0, QUICK, {"book": 2, "docs": 2})
    *_, counts = prose.pieces_of(texts, tokenizer, recipe)
    assert counts == {"book": 20, "docs": 20, "talk": 10}
    with pytest.raises(InputError, match="Weights of bok given; the kinds of text are book, docs, talk"):
        prose.pieces_of(texts, tokenizer, replace(recipe, weights={"bok": 2}))
    with pytest.raises(InputError, match="Weight 0 of book"):
        replace(recipe, weights={"book": 0})


def test_own_answers_are_text_without_the_instructions(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prose, "instructions", lambda *_: ["Write a letter to my aunt.\n\n", "What is tea?\n\n"])
    model = hf.load(tiny_folder("compiled llama"), "tiny", plain=True)
    found = list(prose.answers_of(model, 2, 0, length=48))
    assert [each.kind for each in found] == [prose.ANSWERS] * 2
    assert all(each.text and not each.text.startswith(("Write", "What")) for each in found)
    assert found == list(prose.answers_of(model, 2, 0, length=48))


def test_own_messages_begin_with_ours_and_with_none_that_measures_letters(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = beginnings_of_messages(3000)
    assert begun == beginnings_of_messages(3000) != beginnings_of_messages(3000, 1)
    assert len(set(begun)) > 1500
    measured = json.loads((ROOT / "research/letters.json").read_text())["beginnings"]
    assert not set(begun) & set(measured)
    monkeypatch.setattr(prose, "beginnings_of_messages", lambda *_: ["Hi Kim,\n\nI forgot to", "We had"] * 2)
    model = hf.load(tiny_folder("compiled llama"), "tiny", plain=True)
    found = list(prose.messages_of(model, 4, 0, length=48))
    assert [each.kind for each in found] == [prose.MESSAGES] * 4
    assert [each.text.startswith("We had") for each in found] == [True, True, False, False]
    assert all(each.text.startswith("Hi Kim,\n\nI forgot to") for each in found[2:])
    assert found == list(prose.messages_of(model, 4, 0, length=48))


def test_the_beginnings_of_a_narrow_kind_are_read_only(tokenizer: Tokenizer) -> None:
    texts = [NamedText(kind, kind, story(900, i)) for i, kind in enumerate(("book", "talk"))]
    recipe = ProseRecipe(64 * 20, 0.5, 0.0, QUICK, read_only={"talk": 30})
    ids, counted, _ = prose.pieces_of(texts, tokenizer, recipe)
    assert counted[::2].all() and counted[1::2, 30:].all() and not counted[1::2, :30].any()
    assert np.array_equal(ids, prose.pieces_of(texts, tokenizer, replace(recipe, read_only={}))[0])
    with pytest.raises(InputError, match="Read-only tokens of tlk given; the kinds of text are book, talk"):
        prose.pieces_of(texts, tokenizer, replace(recipe, read_only={"tlk": 30}))
    with pytest.raises(InputError, match="63 read-only tokens of talk given; 0 to 62"):
        replace(recipe, read_only={"talk": 63})


def test_half_typed_words_are_what_the_model_reads_between_two_keys(tokenizer: Tokenizer) -> None:
    texts = [NamedText("book", "b", story(5000))]
    (row,), (predicted,), _ = prose.pieces_of(
        texts, tokenizer, ProseRecipe(256, 0, 0.5, replace(QUICK, batch=1, length=256))
    )
    ids = row.tolist()
    assert tokenizer.decode(ids)[:1000] in texts[0].text
    healer, checked = Healer(tokenizer), 0
    for at in range(1, 255):
        if predicted[at] or not predicted[at + 1]:
            continue  # not the last token of typed letters
        plan = healer.plan(tokenizer.decode(ids[: at + 1]), window=1024)
        typed = tokenizer.decode(plan.word_ids)
        rest = tokenizer.decode([ids[at + 1]])
        assert typed and not typed.endswith(" ") and rest.isalpha()
        assert plan.word_ids[-1] == ids[at]
        checked += 1
    assert checked > 20
    assert not predicted.all() and predicted.mean() > 0.5


def test_a_kind_of_one_document_has_none_to_hold_out_and_others_lose_a_few() -> None:
    texts = [NamedText("book", str(i), f"text {i}") for i in range(120)]
    learnt, held = prose.divided(texts)
    assert (len(learnt), len(held)) == (117, 3)
    assert prose.divided(texts[:60])[1] != held  # a choice among those there are
    with pytest.raises(InputError, match="--held-out"):
        prose.divided([*texts, NamedText("docs", "one", "text")])


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_trained_and_compiled_code_computes_the_result(family: str, tmp_path: Path) -> None:
    module = module_of(family)
    ids = torch.randint(0, VOCAB - 2, (2, 24), generator=torch.Generator().manual_seed(3))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(file_of(family, module).written())
    with torch.no_grad():
        expected = module(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1)
    student = Student(module, QUICK, torch.float32)
    expected = expected.gather(2, ids[:, 1:, None])[..., 0]
    assert float(student.loss(ids).detach()) == pytest.approx(-float(expected.mean()), abs=1e-4)
    torch.manual_seed(0)
    for each in student.parameters:
        torch.nn.init.normal_(each, std=0.1)
    student.loss(ids).backward()
    ours = [each.grad.clone() for each in student.parameters if each.grad is not None]
    for each in student.parameters:
        each.grad = None
    logits = module(input_ids=ids, use_cache=False).logits[:, :-1]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    for mine, each in zip(ours, student.parameters, strict=True):
        torch.testing.assert_close(mine, each.grad, atol=1e-5, rtol=1e-3)
    with closing(load_model(str(path), "torch")) as model:
        model.adapt([(Adapter(student.maps(), QUICK.alpha, model.fingerprint, Result(1, 1, 1.0, 0.0)), 1.0)])
        found = model.open().feed_every(ids[0].tolist())[:-1].log_softmax(-1)
    found = found.gather(1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(student.logprobs(ids[0]), found, atol=2e-3, rtol=1e-3)


def test_only_counted_tokens_are_trained(tiny_folder: Callable[[str], Path]) -> None:
    student = Student(hf.load(tiny_folder("compiled llama"), "tiny", plain=True).layers.module, QUICK, torch.float32)
    ids = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(3))
    counted = torch.zeros(1, 16, dtype=torch.bool)
    counted[0, [3, 9]] = True
    expected = -student.logprobs(ids[0])[[2, 8]].mean()
    assert float(student.loss(ids, counted).detach()) == pytest.approx(float(expected), abs=1e-5)


def texts_of() -> tuple[list[NamedText], list[NamedText]]:
    learnt = [NamedText(kind, f"{kind}{i}", story(200, i)) for kind in ("book", "talk") for i in range(4)]
    return learnt, [NamedText(kind, f"held {kind}", story(150, 99)) for kind in ("book", "talk")]


def test_a_training_begins_with_an_adapter_of_the_same_shape(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def trained(name: str, recipe: ProseRecipe, begin_with: Adapter | None) -> list[ProseStage | ProseOutcome]:
        model = hf.load(tiny_folder("compiled llama"), "tiny", plain=True)
        places = tmp_path / name, tmp_path / f"{name}.work"
        return list(prose.train(model, texts_of, {"text": "test"}, recipe, *places, begin_with=begin_with))

    def first(stages: list[ProseStage | ProseOutcome]) -> dict[str, float]:
        return next(each.held_out for each in stages if isinstance(each, ProseStage) and each.held_out)

    *_, outcome = alone = trained("alone", FEW, None)
    assert isinstance(outcome, ProseOutcome)
    onwards = trained("onwards", replace(FEW, adapter=replace(QUICK, seed=1)), load(tmp_path / "alone"))
    last = [each.held_out for each in alone if isinstance(each, ProseStage) and each.held_out][-1]
    assert first(onwards) == pytest.approx(last, abs=0.2)  # two steps later, in bfloat16
    assert first(onwards)["talk"] > first(alone)["talk"] + 0.1
    with pytest.raises(InputError, match=r"rank 2 and alpha 16 .*rank 3"):
        trained("other", replace(FEW, adapter=replace(QUICK, rank=3)), load(tmp_path / "alone"))


def test_the_mean_of_adapters_is_weighted_and_has_their_provenance(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_folder("compiled llama")
    for name, rate in (("slow", 1e-3), ("fast", 2e-2)):
        model = hf.load(folder, "tiny", plain=True)
        recipe = replace(FEW, adapter=replace(QUICK, rate=rate))
        list(prose.train(model, texts_of, {"text": name}, recipe, tmp_path / name, tmp_path / f"{name}.work"))
    held = tmp_path / "held"
    held.mkdir()
    for each in texts_of()[1]:
        (held / f"{each.kind}-0.txt").write_text(each.text)
    how = ["--held-out", str(held), "--model", str(folder), "--json"]
    parts = [f"{tmp_path / 'slow'}=3", str(tmp_path / "fast")]
    ran = CliRunner().invoke(app, ["train", "average", *parts, "-o", str(tmp_path / "mean"), *how])
    assert ran.exit_code == 0, ran.output
    rows = json.loads(ran.stdout)["rows"]
    assert [row["kind"] for row in rows] == ["book", "talk", "all"]
    assert all(row["gain"] > 0 and "with_base_store_gain" not in row for row in rows)  # the tiny model has no store
    slow, fast, mean = (load(tmp_path / name) for name in ("slow", "fast", "mean"))
    assert mean.result.tokens == slow.result.tokens and mean.model == slow.model
    for projection, low in mean.maps.items():
        for matrix in ("a", "b"):
            three, one = getattr(slow.maps[projection], matrix), getattr(fast.maps[projection], matrix)
            assert torch.allclose(getattr(low, matrix), 0.75 * three + 0.25 * one, atol=1e-2)
    known = json.loads((tmp_path / "mean" / prose.PROVENANCE).read_text())
    assert [(part["weight"], part["provenance"]["text"]["text"]) for part in known["average"]] == [
        (3, "slow"),
        (1, "fast"),
    ]
    assert [part["identity"] for part in known["average"]] == [slow.identity, fast.identity]


def test_adapters_of_other_shapes_or_models_have_no_mean(tiny_folder: Callable[[str], Path]) -> None:
    model = hf.load(tiny_folder("compiled llama"), "tiny", plain=True)
    student = Student(model.layers.module, QUICK)
    adapter = Adapter(student.maps(), 16, "one", Result(1, 1, 0.0, 0.0))
    some = dict(list(adapter.maps.items())[1:])
    for other in (replace(adapter, model="two"), replace(adapter, alpha=8), replace(adapter, maps=some)):
        with pytest.raises(InputError, match="the same of one model expected"):
            mean_adapter([(adapter, 1), (other, 1)])
    for weights in ([], [0.0], [1.0, -1.0]):
        with pytest.raises(InputError, match="positive ones expected"):
            mean_adapter([(adapter, weight) for weight in weights])


def test_a_training_that_is_stopped_again_and_again_gives_the_same_adapter(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def steps(name: str, **changes: Any) -> Any:
        model = hf.load(tiny_folder("compiled llama"), "tiny", plain=True)
        recipe = replace(FEW, **changes)
        return prose.train(model, texts_of, {"text": "test"}, recipe, tmp_path / name, tmp_path / f"{name}.work")

    *stages, outcome = steps("whole")
    assert isinstance(outcome, ProseOutcome) and outcome.share == 1 and outcome.result is not None
    assert outcome.result.gain > 0.3  # ten words, again and again
    curve = [stage.held_out for stage in stages if isinstance(stage, ProseStage) and stage.held_out]
    assert curve[-1]["talk"] > curve[0]["talk"]
    for _ in range(3):  # the state is written however a call ends
        with closing(steps("parts")) as some:
            for stage in some:
                if isinstance(stage, ProseStage) and stage.description == "Training":
                    break
    *_, again = steps("parts")
    assert (again.rows, again.result) == (outcome.rows, outcome.result)
    curves = [(tmp_path / f"{name}.work" / prose.CURVE).read_bytes() for name in ("whole", "parts")]
    assert curves[0] == curves[1]
    whole, parts = (load(tmp_path / name).maps for name in ("whole", "parts"))
    assert all(
        torch.equal(low.a, parts[place].a) and torch.equal(low.b, parts[place].b) for place, low in whole.items()
    )
    *_, done = steps("whole")
    assert done.rows == outcome.rows
    with pytest.raises(InputError, match="another recipe"):
        next(steps("whole", tokens=FEW.tokens * 2))


def test_the_command_trains_sets_aside_and_says_where_it_stopped(
    tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    text, aside, out = tmp_path / "text", tmp_path / "aside.json", tmp_path / "adapter"
    text.mkdir()
    names = [*(f"me/book{i}" for i in range(9)), "you_book"]
    lines = [
        {"text": ("zzz " if name == "you_book" else "") + story(200, i), "meta": {"name": name}}
        for i, name in enumerate(names)
    ]
    (text / "book-0.jsonl").write_text("\n".join(map(json.dumps, lines)))
    aside.write_text(json.dumps({"names": ["you"]}))
    model = str(tiny_folder("long compiled llama"))
    given = ["train", "prose", "--text", str(text), "-o", str(out), "--model", model, "--without", str(aside)]
    given += ["--tokens", "512", "--length", "64", "--batch", "2", "--rank", "2", "--rate", "0.01"]

    def run(*more: str, status: int = 0) -> Any:
        result = CliRunner().invoke(app, [*given, *more])
        assert result.exit_code == status, result.output
        return result

    stopped = run("--minutes", "0")
    assert "25% of the training is done" in stopped.stdout
    assert "Set aside: you, 1 documents" in stopped.stderr
    with np.load(tmp_path / "adapter.work" / prose.PIECES) as stored:
        ids = set(stored["ids"].flatten().tolist())
    letters = hf.load(Path(model), "tiny", plain=True).tokenizer
    assert not ids & set(letters.encode("z"))
    assert ids >= set(letters.encode("harbou"))
    assert "another recipe" in run("--rate", "0.1", status=1).stderr
    row = json.loads(run("--json").stdout)
    assert (row["share"], row["rows"][0]["kind"]) == (1.0, "book")
    adapter = load(out)
    provenance = json.loads((out / prose.PROVENANCE).read_text())
    assert adapter.result.gain == pytest.approx(row["rows"][0]["gain"], abs=1e-3)  # the tiny model has no base store
    assert provenance["kinds"] == {
        "book": {"documents": 8, "characters": provenance["kinds"]["book"]["characters"], "pieces": 8}
    }
    assert provenance["text"]["without"] == ["you"]
    assert len(provenance["curve"]) > 2
    with closing(load_model(model, "torch")) as drafting:
        before = drafting.open().feed([3, 4, 5])
        drafting.adapt([(adapter, 1.0)])
        assert (drafting.open().feed([3, 4, 5]) - before).abs().max() > 0.1
    aside.write_text("[]")
    assert "an object with a list of `names` expected" in run(status=1).stderr
