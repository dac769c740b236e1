"""EAGLE-3's head and its files."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from eagle3_reference import one_pass
from safetensors.torch import load_file, save_file

from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError

pytestmark = pytest.mark.usefixtures("one_thread")
V, V_D = 96, 40


def some_head() -> Eagle3Head:
    torch.manual_seed(1)
    head = Eagle3Head(HeadConfig(32, 32, 2, V, V_D))
    head.set_vocabulary(torch.from_numpy(np.sort(np.random.default_rng(1).permutation(V)[:V_D])))
    return head


def test_the_layer_is_the_published_one() -> None:
    """With the attention of a mask: branches do not see each other."""
    head = some_head()
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


def test_a_saved_head_is_the_same_head(tmp_path: Path) -> None:
    head = some_head()
    head.save(tmp_path / "head", torch.float32)
    found = Eagle3Head.load(tmp_path / "head").check(V, 32)
    assert found.config == head.config
    for name, value in head.state_dict().items():
        assert torch.equal(found.state_dict()[name], value)
    assert torch.equal(found.vocabulary, head.vocabulary)
    assert not list((tmp_path / "head").glob("*.tmp"))
    with pytest.raises(HeadError, match="96 tokens and width 32; this one has 97 and 32"):
        found.check(97, 32)


def test_published_files_are_read(tmp_path: Path) -> None:
    """As they are published: a pytorch_model.bin, half precision, more in config.json, embeddings repeated."""
    head = some_head()
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


class Files:
    """A checkpoint, and what it holds."""

    def __init__(self, folder: Path) -> None:
        some_head().save(folder)
        self.weights, self.config, self.pickle = (
            folder / name for name in ("model.safetensors", "config.json", "pytorch_model.bin")
        )
        self.tensors, self.said = load_file(self.weights), json.loads(self.config.read_text())

    def say(self, **fields: object) -> None:
        self.config.write_text(json.dumps({**self.said, **fields}))

    def hold(self, **tensors: torch.Tensor) -> None:
        save_file({**self.tensors, **{name.replace("__", "."): each for name, each in tensors.items()}}, self.weights)

    def pickled(self, tensors: object) -> None:
        self.weights.unlink()
        torch.save(tensors, self.pickle)

    def compressed(self) -> None:
        self.weights.unlink()
        with zipfile.ZipFile(self.pickle, "w", zipfile.ZIP_DEFLATED) as members:
            members.writestr("archive/data.pkl", bytes(1 << 20))


DAMAGES: dict[str, tuple[Callable[[Files], object], str]] = {
    "no folder": (lambda f: shutil.rmtree(f.config.parent), "No EAGLE-3 head at"),
    "no json": (lambda f: f.config.write_text("{"), "is not JSON"),
    "deep json": (lambda f: f.config.write_text("[" * 100_000), "is not JSON"),
    "a list": (lambda f: f.config.write_text("[]"), "no JSON object"),
    "no width": (lambda f: f.say(hidden_size=None), "hidden_size None: Input"),
    "odd heads": (lambda f: f.say(num_key_value_heads=3), "do not fit together"),
    "rotation": (lambda f: f.say(rope_theta="x"), "rope_theta 'x': Input should be a valid number"),
    "no number": (lambda f: f.say(rms_norm_eps=float("nan")), "rms_norm_eps nan: Input should be"),
    "layer names": (lambda f: f.say(layers=["low", 1, 2]), "layers.0 'low': Input"),
    "more drafts than tokens": (lambda f: f.say(draft_vocab_size=1000), "draft_vocab_size 1000; at most"),
    "absurd sizes": (lambda f: f.say(hidden_size=1 << 40), "hidden_size 1099511627776: Input should be less"),
    "large sizes": (
        lambda f: f.say(**dict.fromkeys(("hidden_size", "intermediate_size", "head_dim"), 1 << 30)),
        "sizes that no head has|shape .* expected",
    ),
    "no weights": (lambda f: f.weights.unlink(), "neither model.safetensors nor"),
    "cut": (lambda f: f.weights.write_bytes(f.weights.read_bytes()[:-100]), "cannot be read"),
    "pickle": (lambda f: f.pickled({"fc.weight": Path("/")}), "cannot be read"),
    "compressed": (lambda f: f.compressed(), "is compressed"),
    "missing": (lambda f: f.pickled({n: v for n, v in f.tensors.items() if n != "norm.weight"}), "has no norm.weight"),
    "another layer": (lambda f: f.hold(midlayer2__x=torch.zeros(1)), "has midlayer2.x, which"),
    "shape": (lambda f: f.hold(norm__weight=torch.zeros(31)), r"norm.weight has shape \(31,\); \(32,\) expected"),
    "vocabulary": (lambda f: f.hold(d2t=f.tensors["d2t"] + 1000), "do not agree"),
    "not finite": (
        lambda f: f.hold(fc__weight=torch.full_like(f.tensors["fc.weight"], torch.nan)),
        "fc.weight contains numbers that are not finite",
    ),
    "sparse": (
        lambda f: f.pickled({**f.tensors, "fc.weight": f.tensors["fc.weight"].to_sparse()}),
        "fc.weight contains numbers that are not finite",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints_say_what_is_wrong(tmp_path: Path, damage: str) -> None:
    change, said = DAMAGES[damage]
    change(Files(tmp_path / "head"))
    with pytest.raises(HeadError, match=said) as caught:
        Eagle3Head.load(tmp_path / "head")
    assert "\n" not in str(caught.value)


def test_the_features_of_the_default_models_depth_enter_layers_2_15_and_27() -> None:
    assert HeadConfig(576, 1536, 9, 49152, 1024).feature_layers(30) == (2, 15, 27)
