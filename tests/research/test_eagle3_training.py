"""The training of EAGLE-3 heads, on a tiny target."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from eagle3_reference import one_pass
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from app.cli.main import app
from core.models import hf, load
from core.models.llama import why_not
from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError
from research.training.heads import Recipe, draft_vocabulary, new_head, train, unrolled
from research.training.teacher import CompiledTeacher, ModuleTeacher
from tests.chi_squared import chi_squared

pytestmark = pytest.mark.usefixtures("one_thread")
V, V_D = 96, 40


@pytest.fixture(scope="module")
def teacher() -> ModuleTeacher:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=5,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
    )
    config._attn_implementation = "eager"
    module = LlamaForCausalLM(config)
    for parameter in module.parameters():  # a random model is nearly uniform; this one has opinions
        parameter.data.mul_(3)
    return ModuleTeacher(module)


def head_of(teacher: ModuleTeacher) -> Eagle3Head:
    torch.manual_seed(1)
    vocabulary = torch.from_numpy(np.sort(np.random.default_rng(1).permutation(V)[:V_D]))
    head = Eagle3Head(teacher.config(V_D))
    head.set_vocabulary(vocabulary)
    return head


def texts_of(teacher: ModuleTeacher, n: int = 64, length: int = 24) -> np.ndarray:
    return teacher.continued(np.random.default_rng(2).integers(0, V, (n, 2)), length, seed=3)


def test_the_training_pass_is_what_drafting_does(teacher: ModuleTeacher) -> None:
    """At each position: feed the target's features, then draft by the head alone; the figures must be the same."""
    head = head_of(teacher)
    ids = torch.from_numpy(texts_of(teacher, 2, 12).astype(np.int64))
    steps = 3
    with torch.no_grad():
        found = unrolled(head, teacher, ids, steps)
        logits, features = teacher(ids)
        p = logits.softmax(-1)
        overlaps: list[list[float]] = [[] for _ in range(steps)]
        for row in range(2):
            for t in range(11):
                x = teacher.embeddings[ids[row, 1 : t + 2]][None]
                out, held = one_pass(head, x, head.fuse(features[row, : t + 1])[None], torch.arange(t + 1))
                f = out[:, -1:]
                for j in range(steps):
                    if t + 1 + j >= 12:
                        break
                    q = head.logits(f[0, 0]).softmax(-1)
                    share = p[row, t + 1 + j][head.vocabulary]
                    overlaps[j].append(float(torch.minimum(share, q).sum()))
                    if t + 2 + j < 12:  # the text's own next token represents an accepted one
                        x = teacher.embeddings[ids[row, t + 2 + j]][None, None]
                        f, held = one_pass(head, x, f, torch.tensor([t + 1 + j]), held)
    assert found.overlaps == pytest.approx([float(np.mean(each)) for each in overlaps], abs=1e-5)


def test_training_teaches(teacher: ModuleTeacher, tmp_path: Path) -> None:
    pieces = texts_of(teacher)
    vocabulary = draft_vocabulary(pieces, V, V_D)
    torch.manual_seed(0)
    head = new_head(teacher, vocabulary)
    test = torch.from_numpy(texts_of(teacher, 96)[64:].astype(np.int64))
    with torch.no_grad():
        head.norm.weight.fill_(1.0)  # worse than the target's, so that there is more to learn
        before = unrolled(head, teacher, test, 3)
    steps = train(head, teacher, pieces, Recipe(steps=60, batch=16, unroll=3, rate=1e-2, warm_up=5), tmp_path)
    with torch.no_grad():
        after = unrolled(head, teacher, test, 3)
    assert steps == 60
    assert all(now > was + 0.02 for was, now in zip(before.overlaps, after.overlaps, strict=True))
    assert all(now > 1.5 * was for was, now in zip(before.matches, after.matches, strict=True))
    assert len((tmp_path / "loss.jsonl").read_text().splitlines()) == 60


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
def test_a_gpu_trains_a_head_and_a_cpu_reads_it(teacher: ModuleTeacher, tmp_path: Path) -> None:
    on_gpu = ModuleTeacher(deepcopy(teacher.module).to("cuda"))
    pieces = texts_of(teacher)
    head = new_head(on_gpu, draft_vocabulary(pieces, V, V_D))
    recipe = Recipe(steps=20, batch=16, unroll=3, rate=1e-2, warm_up=5)
    train(head, on_gpu, pieces, recipe, tmp_path / "work", rounded=True)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "work" / "loss.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] and head.fc.weight.device.type == "cuda"
    head.save(tmp_path / "head")
    assert Eagle3Head.load(tmp_path / "head").fc.weight.device.type == "cpu"
    assert on_gpu.continued(pieces[:3, :4], 8, seed=0).shape == (3, 8)


def test_training_that_was_interrupted_goes_on_to_the_same_weights(teacher: ModuleTeacher, tmp_path: Path) -> None:
    pieces = texts_of(teacher, 20)
    vocabulary = draft_vocabulary(pieces, V, V_D)

    def head() -> Eagle3Head:
        torch.manual_seed(0)
        return new_head(teacher, vocabulary)

    recipe = Recipe(steps=9, batch=4, unroll=2, save_every=4)
    whole = head()
    train(whole, teacher, pieces, recipe, tmp_path / "whole")

    def stop(step: int, *_: object) -> None:
        if step == 6:  # two steps are lost
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(head(), teacher, pieces, recipe, tmp_path / "parts", stop)
    ticks = iter([0.0, 0.0, 0.0, 0.0, 100.0])
    again = head()
    assert train(again, teacher, pieces, recipe, tmp_path / "parts", minutes=1, clock=lambda: next(ticks)) == 6
    again = head()
    assert train(again, teacher, pieces, recipe, tmp_path / "parts") == 9
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value)
    losses = [(tmp_path / part / "loss.jsonl").read_text() for part in ("whole", "parts")]
    assert losses[0] == losses[1]
    with pytest.raises(HeadError, match="another recipe or other texts"):
        train(head(), teacher, pieces[:8], recipe, tmp_path / "parts")
    (tmp_path / "parts" / "state.pt").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(HeadError, match="cannot be read"):
        train(head(), teacher, pieces, recipe, tmp_path / "parts")


@pytest.fixture(scope="module")
def compiled(teacher: ModuleTeacher) -> CompiledTeacher:
    if reason := why_not(teacher.module):
        pytest.skip(reason)
    return CompiledTeacher(teacher.module, remembered=3)


def test_the_compiled_teacher_equals_the_module(teacher: ModuleTeacher, compiled: CompiledTeacher) -> None:
    ids = torch.from_numpy(texts_of(teacher, 4, 9).astype(np.int64))
    logits, features = teacher(ids)
    for some in (ids[:2], ids[2:], ids[:2], ids):  # remembered, and forgotten
        said, seen = compiled(some)
        rows = [int((ids == row).all(1).nonzero()[0, 0]) for row in some]
        assert float((said.softmax(-1) - logits[rows].softmax(-1)).abs().max()) < 0.1
        torch.testing.assert_close(seen, features[rows], atol=0.05, rtol=0.05)
    for said, seen in zip(compiled.hidden(ids), teacher.hidden(ids), strict=True):
        torch.testing.assert_close(said.float(), seen, atol=0.05, rtol=0.05)
    vocabulary = torch.arange(3, 20)
    torch.testing.assert_close(compiled(ids, vocabulary)[0], compiled(ids)[0][..., vocabulary])


def test_the_compiled_teacher_samples_from_the_modules_distribution(teacher: ModuleTeacher) -> None:
    """χ² of the first sampled token, 4,000 times, against the module's distribution; a correct one fails once in
    1,000."""
    if reason := why_not(teacher.module):
        pytest.skip(reason)
    compiled = CompiledTeacher(teacher.module)
    prompt = np.array([[3, 7, 1]], np.int32)
    drawn = compiled.continued(np.repeat(prompt, 4000, 0), 4, seed=0)[:, 3]
    said = compiled(torch.from_numpy(prompt.astype(np.int64)))[0][0, -1].float().softmax(-1).numpy().astype(np.float64)
    expected = {(token,): p for token, p in enumerate(said / said.sum())}
    assert chi_squared(Counter((token,) for token in drawn.tolist()), expected, 4000) < 3.1


def test_the_command_trains_a_head_for_a_model(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few steps on a tiny model: from text to a checkpoint that loads."""
    model = hf.load(tiny_folder("long compiled llama"), "tiny", plain=True)
    monkeypatch.setattr(load, "load_module", lambda name: model)
    text = tmp_path / "text.txt"
    text.write_text("The harbour was quiet in the morning, and the boats lay still. " * 60)
    out = tmp_path / "head"
    flags = [
        "--texts",
        "8",
        "--own",
        "0.25",
        "--answers",
        "2",
        "--length",
        "64",
        "--vocabulary",
        "64",
        "--steps",
        "2",
        "--batch",
        "2",
    ]
    result = CliRunner().invoke(app, ["train", "eagle3", str(text), "-o", str(out), *flags, "--held-out", str(text)])
    assert result.exit_code == 0, result.output
    assert "step 2 of 2" in result.output
    assert "accepted by sampling" in result.output
    head = Eagle3Head.load(out)
    assert head.config == HeadConfig.of(json.loads((out / "config.json").read_text()))
    assert (head.config.vocab_size, head.config.hidden_size, head.config.layers) == (300, 32, (1, 1, 0))
    further = tmp_path / "further"
    again = ["train", "eagle3", str(text), "-o", str(further), *flags, "--begin-with", str(out)]
    assert CliRunner().invoke(app, again).exit_code == 0
    assert torch.equal(Eagle3Head.load(further).vocabulary, Eagle3Head.load(out).vocabulary)
    refused = CliRunner().invoke(app, [*again[:3], "-o", str(tmp_path / "y"), *flags, "--begin-with", str(tmp_path)])
    assert refused.exit_code == 1
    assert "No EAGLE-3 head" in refused.output
    without = CliRunner().invoke(app, [*again[:3], "-o", str(tmp_path / "z"), *flags, "--prose"])
    assert without.exit_code == 1
    assert "no adapter to prose for tiny" in without.output
    wrong = CliRunner().invoke(app, ["train", "eagle3", str(tmp_path / "none"), "-o", str(tmp_path / "x"), *flags])
    assert wrong.exit_code == 1
    assert "none" in wrong.output
