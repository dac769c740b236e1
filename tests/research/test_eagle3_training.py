"""EAGLE-3: the head, its files, and its training, on a tiny target."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from eagle3_reference import one_pass
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from core.models import hf, load
from core.models.llama import why_not
from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError
from research.training.first_weights import fit_first_weights
from research.training.heads import Recipe, draft_vocabulary, new_head, train, unrolled
from research.training.instructions import instructions
from research.training.teacher import CompiledTeacher, ModuleTeacher, answers, own_texts, windows
from tests.core.speculative.test_speculative import chi_squared

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


# ---------------------------------------------------------------- the head


def test_the_layer_is_the_published_one(teacher: ModuleTeacher) -> None:
    """With the attention of a mask: branches do not see each other."""
    head = head_of(teacher)
    x, f = torch.randn(1, 5, 32), torch.randn(1, 5, 32)
    positions = torch.tensor([0, 1, 2, 2, 3])  # 3 is a sibling of 2, 4 a child of 3
    mask = torch.tensor(
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]], dtype=torch.bool
    )

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2)

    joined = head.joined()
    found = head.layer(head.of_tokens(x, joined), f, positions, joined, attend)
    expected, _ = one_pass(head, x, f, positions, mask=mask)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    first, held = one_pass(head, x[:, :2], f[:, :2], positions[:2])
    rest, _ = one_pass(head, x[:, 2:3], f[:, 2:3], positions[2:3], held)
    torch.testing.assert_close(torch.cat((first, rest), 1), found[:, :3], atol=1e-5, rtol=1e-4)


def test_a_saved_head_is_the_same_head(teacher: ModuleTeacher, tmp_path: Path) -> None:
    head = head_of(teacher)
    head.save(tmp_path / "head", torch.float32)
    found = Eagle3Head.load(tmp_path / "head").check(V, 32)
    assert found.config == head.config
    for name, value in head.state_dict().items():
        assert torch.equal(found.state_dict()[name], value)
    assert torch.equal(found.vocabulary, head.vocabulary)
    assert not list((tmp_path / "head").glob("*.tmp"))
    with pytest.raises(HeadError, match="96 tokens and width 32; this one has 97 and 32"):
        found.check(97, 32)


def test_published_files_are_read(teacher: ModuleTeacher, tmp_path: Path) -> None:
    """As they are published: a pytorch_model.bin, half precision, more in config.json, embeddings repeated."""
    head = head_of(teacher)
    said = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": V,
        "draft_vocab_size": V_D,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0,
        "rope_scaling": None,
        "torch_dtype": "float16",
    }
    (tmp_path / "config.json").write_text(json.dumps(said))
    tensors = {n: v.half() if v.is_floating_point() else v for n, v in head.state_dict().items()}
    torch.save({**tensors, "embed_tokens.weight": torch.zeros(V, 32)}, tmp_path / "pytorch_model.bin")
    found = Eagle3Head.load(tmp_path)
    assert found.config.rope_theta == 500000.0
    assert found.config.feature_layers(32) == (2, 16, 29)
    assert found.fc.weight.dtype == torch.float32
    torch.testing.assert_close(found.fc.weight, head.fc.weight, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("no folder", "No EAGLE-3 head at"),
        ("no json", "is not JSON"),
        ("a list", "no JSON object"),
        ("no width", "hidden_size None; a number"),
        ("odd heads", "do not fit together"),
        ("no weights", "neither model.safetensors nor"),
        ("cut", "cannot be read"),
        ("pickle", "cannot be read"),
        ("missing", "has no norm.weight"),
        ("another layer", "has midlayer2.x, which"),
        ("shape", r"norm.weight has shape \(31,\); \(32,\) expected"),
        ("vocabulary", "do not agree"),
        ("deep json", "is not JSON"),
        ("rotation", "rope_theta 'x'; a number above 0"),
        ("no number", "rms_norm_eps nan; a number above 0"),
        ("layer names", r"layers \['low', 1, 2\]; three numbers"),
        ("more drafts than tokens", "draft_vocab_size 1000; at most"),
        ("absurd sizes", "hidden_size 1099511627776; a number above 0"),
        ("large sizes", "sizes that no head has|shape .* expected"),
        ("not finite", "fc.weight contains numbers that are not finite"),
        ("sparse", "fc.weight contains numbers that are not finite"),
        ("compressed", "is compressed"),
    ],
)
def test_damaged_checkpoints_say_what_is_wrong(
    teacher: ModuleTeacher, tmp_path: Path, damage: str, message: str
) -> None:
    folder = tmp_path / "head"
    head_of(teacher).save(folder)
    weights, config = folder / "model.safetensors", folder / "config.json"
    tensors, said = load_file(weights), json.loads(config.read_text())
    if damage == "no folder":
        folder = tmp_path / "nothing"
    elif damage == "no json":
        config.write_text("{")
    elif damage == "a list":
        config.write_text("[]")
    elif damage == "no width":
        del said["hidden_size"]
        config.write_text(json.dumps(said))
    elif damage == "odd heads":
        config.write_text(json.dumps({**said, "num_key_value_heads": 3}))
    elif damage == "no weights":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "pickle":
        weights.unlink()
        torch.save({"fc.weight": Path("/")}, folder / "pytorch_model.bin")
    elif damage == "missing":
        save_file({n: v for n, v in tensors.items() if n != "norm.weight"}, weights)
    elif damage == "another layer":
        save_file({**tensors, "midlayer2.x": torch.zeros(1)}, weights)
    elif damage == "shape":
        save_file({**tensors, "norm.weight": torch.zeros(31)}, weights)
    elif damage == "vocabulary":
        save_file({**tensors, "d2t": tensors["d2t"] + 1000}, weights)
    elif damage == "deep json":
        config.write_text("[" * 100_000)
    elif damage == "compressed":
        weights.unlink()
        with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as members:
            members.writestr("archive/data.pkl", bytes(1 << 20))
    elif damage in CONFIGURED:
        config.write_text(json.dumps({**said, **CONFIGURED[damage]}))
    elif damage == "not finite":
        save_file({**tensors, "fc.weight": torch.full_like(tensors["fc.weight"], torch.nan)}, weights)
    elif damage == "sparse":
        weights.unlink()
        torch.save({**tensors, "fc.weight": tensors["fc.weight"].to_sparse()}, folder / "pytorch_model.bin")
    with pytest.raises(HeadError, match=message) as caught:
        Eagle3Head.load(folder)
    assert "\n" not in str(caught.value)


CONFIGURED: dict[str, dict[str, object]] = {
    "rotation": {"rope_theta": "x"},
    "no number": {"rms_norm_eps": float("nan")},
    "layer names": {"layers": ["low", 1, 2]},
    "more drafts than tokens": {"draft_vocab_size": 1000},
    "absurd sizes": {"hidden_size": 1 << 40},
    "large sizes": {"hidden_size": 1 << 30, "intermediate_size": 1 << 30, "head_dim": 1 << 30},
}


# ---------------------------------------------------------------- its training


def test_features_are_what_enters_three_layers(teacher: ModuleTeacher) -> None:
    ids = torch.from_numpy(texts_of(teacher, 2, 9).astype(np.int64))
    seen: dict[int, torch.Tensor] = {}
    layers = teacher.module.model.layers  # pyright: ignore[reportAttributeAccessIssue]
    hooks = [
        layer.register_forward_pre_hook(lambda _, given, n=n: seen.__setitem__(n, given[0]))
        for n, layer in enumerate(layers)  # pyright: ignore[reportArgumentType]
    ]
    logits, features = teacher(ids)
    for hook in hooks:
        hook.remove()
    assert teacher.layers == (2, 2, 2)  # of five layers: 2, half, the last but two
    assert torch.equal(features, torch.cat([seen[n] for n in teacher.layers], -1))
    assert logits.shape == (2, 9, V)


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


def test_what_the_compiled_teacher_wrote_it_need_not_read_again(teacher: ModuleTeacher) -> None:
    if reason := why_not(teacher.module):
        pytest.skip(reason)
    writer, reader = CompiledTeacher(teacher.module), CompiledTeacher(teacher.module)
    pieces = np.random.default_rng(5).integers(0, V, (6, 4)).astype(np.int32)
    made = writer.continued(pieces, 10, seed=1)
    assert np.array_equal(made[:, :4], pieces)
    assert np.array_equal(made, writer.continued(pieces, 10, seed=1))
    assert not np.array_equal(made, writer.continued(pieces, 10, seed=2))
    assert all(row.astype(np.int64).tobytes() in writer._remembered for row in made)
    ids = torch.from_numpy(made.astype(np.int64))
    for ours, theirs in zip(writer.hidden(ids), reader.hidden(ids), strict=True):
        torch.testing.assert_close(ours.float(), theirs.float(), atol=0.05, rtol=0.05)


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


def test_fitted_weights_are_a_head_before_any_training(teacher: ModuleTeacher, compiled: CompiledTeacher) -> None:
    pieces = torch.from_numpy(texts_of(teacher, 200).astype(np.int64))
    test, learnt = pieces[:40], pieces[40:]
    vocabulary = draft_vocabulary(learnt.numpy(), V, V_D)
    torch.manual_seed(0)
    head = new_head(teacher, vocabulary)
    with torch.no_grad():
        before = unrolled(head, teacher, test, 1)
        parts = [compiled.hidden(some) for some in learnt.split(3)]
        features, last = (torch.cat(each) for each in zip(*parts, strict=True))
        scale = fit_first_weights(head, features.float(), last.float(), teacher.embeddings[learnt])
        after = unrolled(head, teacher, test, 1)
    assert after.overlaps[0] > before.overlaps[0] + 0.02
    torch.testing.assert_close(scale, features[:, :-1].float().square().mean((0, 1)).sqrt(), atol=1e-4, rtol=1e-3)


def test_pieces_stay_within_their_texts() -> None:
    texts = ["a" * 50, "b" * 7, "c" * 1000]
    found = windows(texts, lambda text: [ord(letter) for letter in text], 8, 16)
    assert found.shape[1] == 8
    assert all(len(set(piece)) == 1 for piece in found.tolist())
    assert {piece[0] for piece in found.tolist()} == {ord("a"), ord("c")}


def test_own_texts_go_on_where_they_stopped(teacher: ModuleTeacher, tmp_path: Path) -> None:
    pieces = texts_of(teacher, 10, 12)
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = own_texts(teacher, pieces, 4, tmp_path / "whole", batch=4)
    assert np.array_equal(whole[:, :4], pieces[:, :4])
    assert not np.array_equal(whole, pieces)

    def stop(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        own_texts(teacher, pieces, 4, tmp_path / "parts", 4, stop)
    assert np.array_equal(own_texts(teacher, pieces, 4, tmp_path / "parts", 4), whole)


def test_answers_begin_with_their_prompts_and_go_on_where_they_stopped(teacher: ModuleTeacher, tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    prompts = [chance.integers(0, V, n).tolist() for n in (5, 2, 7, 3, 6)]
    for part in ("whole", "parts"):
        (tmp_path / part).mkdir()
    whole = answers(teacher, prompts, 12, tmp_path / "whole", batch=2)
    assert whole.shape == (5, 12)
    begins = [row.tolist() for row in whole]
    # The shorter first, two at a time: each pair from where its shorter one ends.
    for row, ids, kept in zip(begins, sorted(prompts, key=len), (2, 2, 5, 5, 7), strict=True):
        assert row[:kept] == ids[-kept:]

    def stop(done: int) -> None:
        if done > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answers(teacher, prompts, 12, tmp_path / "parts", 2, stop)
    assert np.array_equal(answers(teacher, prompts, 12, tmp_path / "parts", 2), whole)
    with pytest.raises(InputError, match="other texts"):
        answers(teacher, prompts[1:], 12, tmp_path / "parts", 2)


def test_instructions_are_filled_and_drawn_alike() -> None:
    made = instructions(400)
    assert made == instructions(400)
    assert made != instructions(400, seed=1)
    assert len(set(made)) > 300
    assert all(text.endswith("\n\n") and text.strip() for text in made)
    assert not [text for text in made if re.search(r"{[a-z]+}", text)]
    assert sum("def " in text for text in made) > 80


def test_the_features_of_the_default_models_depth_enter_layers_2_15_and_27() -> None:
    assert HeadConfig(576, 1536, 9, 49152, 1024).feature_layers(30) == (2, 15, 27)


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
