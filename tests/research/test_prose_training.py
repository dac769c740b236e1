"""Training on prose: text is chosen as the recipe says, a stopped training gives the same adapter, authors who are set
aside train nothing, and an adapter says where it comes from."""

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
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from core.healing import Healer
from core.models import gguf_file, hf, hf_tokenizer, load_model
from core.models.adapter import PROJECTIONS, Adapter, Result, load
from core.models.tokenizer import Tokenizer
from research.texts import NamedText
from research.training import prose
from research.training.given import mean_adapter
from research.training.prose import ProseOutcome, ProseRecipe, ProseStage
from tests.paths import ROOT
from training.adapter import AdapterRecipe, Student

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


@settings(max_examples=100)
@given(name=st.text("ab/_.#", min_size=1, max_size=6), aside=st.text("ab/_.#", min_size=1, max_size=4))
def test_a_name_sets_aside_its_documents_and_no_others_that_begin_alike(name: str, aside: str) -> None:
    kept, counts = prose.without([NamedText("book", name, "text")], [aside])
    below = name == aside or any(name.startswith(aside + mark) for mark in "/_.#")
    assert (len(kept), counts) == (0 if below else 1, {aside: int(below)})


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


def texts_of() -> tuple[list[NamedText], list[NamedText]]:
    learnt = [NamedText(kind, f"{kind}{i}", story(200, i)) for kind in ("book", "talk") for i in range(4)]
    return learnt, [NamedText(kind, f"held {kind}", story(150, 99)) for kind in ("book", "talk")]


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
    authors = prose.names_in(ROOT / "research" / "training" / "set_aside.json")
    assert len(set(authors)) == 10 and all(author.startswith("standardebooks/") for author in authors)
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
