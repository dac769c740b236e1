"""How an EAGLE-3 head is trained: on the target's own features, with the head's own output fed back several times.

Training-time test (section 3.2 of arXiv 2503.01840). In use, the head sees the target's features only up to the last
accepted token; from there on its own output stands in. So a training step unrolls it: at step 0 every position has the
target's feature, at step j the output of step j-1 in its place, shifted by one token each time. A position at step j
looks at the target's features before it, and at its own chain of steps, nothing else; so all positions of a
text are trained at once.

Shapes: B texts, T tokens each, D_t width of the target, V and V_d vocabularies of target and head.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError  # what torch raises for a file with more than tensors in it; nothing is unpickled
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from core.errors import InputError
from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError

DECAY = 0.8  # of a step's weight in the loss, from one step to the next


class Teacher(Protocol):
    """The target, as training sees it."""

    embeddings: Tensor  # (V, D_t)

    def __call__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of texts (B, T): logits (B, T, V) and features (B, T, 3·D_t)."""
        ...


@dataclass(frozen=True)
class Recipe:
    """What is chosen.

    Attributes:
        steps: of the optimiser.
        batch: texts per step.
        unroll: steps of the training-time test.
        rate: the highest learning rate; it rises for `warm_up` steps and falls as a cosine to a tenth.
        clip: of the gradient's norm.
        seed: of the order of the texts and of the first weights.
        save_every: steps between two states on disk.
    """

    steps: int = 2000
    batch: int = 8
    unroll: int = 4
    rate: float = 1e-3
    warm_up: int = 50
    clip: float = 1.0
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "unroll", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} given; at least 1 expected.")
        if not self.rate > 0:
            raise InputError(f"rate {self.rate} given; above 0 expected.")

    def rate_at(self, step: int) -> float:
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        share = (step - self.warm_up) / max(self.steps - self.warm_up, 1)
        return self.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(share, 1.0))))


@dataclass
class Unrolled:
    """One unrolled pass: figures per step of the training-time test, each a mean over positions.

    Attributes:
        losses: cross-entropy with the target's distribution, in nats.
        overlaps: Σ min(p, q): the chance that lossless rejection sampling accepts the token.
        matches: the head's likeliest token is the target's likeliest.
    """

    losses: list[Tensor]
    overlaps: list[float]
    matches: list[float]

    @property
    def loss(self) -> Tensor:
        weights = [DECAY**j for j in range(len(self.losses))]
        return torch.stack([w * loss for w, loss in zip(weights, self.losses, strict=True)]).sum() / sum(weights)


def draft_vocabulary(windows: np.ndarray, vocab_size: int, size: int) -> Tensor:
    """The `size` most frequent tokens of the texts (N, T), by id; ties go to the lower one."""
    counts = np.bincount(windows.ravel(), minlength=vocab_size)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:size]))


def new_head(config: HeadConfig, teacher: Teacher, vocabulary: Tensor, output: Tensor | None = None) -> Eagle3Head:
    """An untrained head. It reads the high feature as it is and speaks with the target's own output rows, (V, D)
    `output`, where widths agree: that is a poor draft model, and far from a random one."""
    head = Eagle3Head(config)
    head.set_vocabulary(vocabulary)
    d = config.hidden_size
    with torch.no_grad():
        output = teacher.embeddings if output is None else output
        if output.shape[1] == d:
            head.lm_head.weight.copy_(output[vocabulary])
        if config.target_width == d:
            head.fc.weight.mul_(0.1)
            head.fc.weight[:, 2 * d :] += torch.eye(d)
        head.midlayer.self_attn.o_proj.weight.mul_(0.1)
        head.midlayer.mlp.down_proj.weight.mul_(0.1)
    return head


def unrolled(head: Eagle3Head, teacher: Teacher, ids: Tensor, steps: int) -> Unrolled:
    """The training-time test on texts (B, T), T > steps + 1."""
    logits, features = teacher(ids)
    layer, attention = head.midlayer, head.midlayer.self_attn
    vocabulary = head.vocabulary
    groups = attention.heads // attention.key_heads
    n = ids.shape[1] - 1  # positions that have a feature and a next token
    p_all = logits[:, 1:].float().softmax(-1)  # (B, n, V): after the token that position t embeds
    p = p_all[..., vocabulary]  # (B, n, V_d)
    best = p_all.argmax(-1)
    x = teacher.embeddings[ids[:, 1:]]  # (B, n, D_t)
    f = head.fuse(features[:, :-1])
    before = torch.ones(n, n, dtype=torch.bool, device=ids.device).tril()
    positions = torch.arange(n, device=ids.device)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    found = Unrolled([], [], [])
    for j in range(min(steps, n - 1)):
        inputs = torch.cat((layer.input_layernorm(x), layer.hidden_norm(f)), -1)
        q, k, v = attention.project(inputs, positions + j)
        keys.append(k.repeat_interleave(groups, 1))
        values.append(v.repeat_interleave(groups, 1))
        scale = q.shape[-1] ** -0.5
        seen = (q @ keys[0].transpose(-1, -2) * scale).masked_fill(~before, -torch.inf)  # (B, H, n, n)
        own = [(q * key).sum(-1, keepdim=True) * scale for key in keys[1:]]  # (B, H, n, 1) each
        weights = torch.cat((seen, *own), -1).float().softmax(-1).to(v.dtype)
        mixed = weights[..., :n] @ values[0]
        for i, value in enumerate(values[1:]):
            mixed = mixed + weights[..., n + i : n + i + 1] * value
        f = f + attention.o_proj(mixed.transpose(1, 2).flatten(2))
        f = f + layer.mlp(layer.post_attention_layernorm(f))
        told = slice(0, n - j)  # positions whose shifted target lies within the text
        logq = head.logits(f[:, told]).float().log_softmax(-1)
        share = p[:, j:]  # (B, n - j, V_d); less than 1 where the target may leave the draft vocabulary
        found.losses.append(-(share * logq).sum() / share.sum())
        with torch.no_grad():
            found.overlaps.append(float(torch.minimum(share, logq.exp()).sum(-1).mean()))
            found.matches.append(float((vocabulary[logq.argmax(-1)] == best[:, j:]).float().mean()))
        # The next step is one token further; what falls off the end is not told of again.
        x = F.pad(x[:, 1:], (0, 0, 0, 1))
    return found


def train(
    head: Eagle3Head,
    teacher: Teacher,
    windows: np.ndarray,
    recipe: Recipe,
    folder: Path,
    progress: Callable[[int, dict[str, Any]], None] = lambda *_: None,
    minutes: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Train on texts (N, T) of ids, going on from the state in `folder` if there is one for this recipe.

    Every `save_every` steps, and at the end, the state is written, and one line per step to `loss.jsonl`.

    Args:
        progress: called after each step with its number and its figures.
        minutes: stop after so many, at a state from which the same call goes on.
    Returns: steps done in all. Raises HeadError for a state that cannot be read or is of another recipe.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimiser = torch.optim.AdamW(head.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.01)
    done = _resume(head, optimiser, recipe, folder, windows)
    lines = _kept_lines(folder / "loss.jsonl", done)
    until = clock() + 60 * minutes
    head.train()
    for step, batch in enumerate(_batches(windows, recipe, done), start=done):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate_at(step)
        found = unrolled(head, teacher, torch.from_numpy(batch), recipe.unroll)
        optimiser.zero_grad()
        found.loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(head.parameters(), recipe.clip))
        if not math.isfinite(norm):
            raise HeadError(f"The loss is no number at step {step + 1}; try a lower --rate than {recipe.rate:g}.")
        optimiser.step()
        figures = {
            "step": step + 1,
            "loss": round(float(found.loss.detach()), 4),
            "losses": [round(float(loss.detach()), 4) for loss in found.losses],
            "overlaps": [round(value, 4) for value in found.overlaps],
            "matches": [round(value, 4) for value in found.matches],
        }
        lines.append(json.dumps(figures))
        done = step + 1
        late = clock() > until
        if done % recipe.save_every == 0 or done == recipe.steps or late:
            _save(head, optimiser, recipe, folder, windows, done, lines)
        progress(done, figures)
        if late:
            break
    head.eval()
    return done


def _batches(windows: np.ndarray, recipe: Recipe, done: int) -> Iterator[np.ndarray]:
    """The batches from step `done` on: every text once per round, in an order that seed and round decide."""
    per_round = max(len(windows) // recipe.batch, 1)
    for step in range(done, recipe.steps):
        number, at = divmod(step, per_round)
        order = np.random.default_rng((recipe.seed, number)).permutation(len(windows))
        yield windows[order[at * recipe.batch : (at + 1) * recipe.batch]].astype(np.int64)


def _identity(recipe: Recipe, windows: np.ndarray) -> str:
    """What a state belongs to. `steps` may be raised later on."""
    chosen = {name: value for name, value in asdict(recipe).items() if name not in ("steps", "save_every")}
    return json.dumps({**chosen, "texts": list(windows.shape), "sum": int(windows.sum(dtype=np.int64))})


def _save(
    head: Eagle3Head,
    optimiser: torch.optim.Optimizer,
    recipe: Recipe,
    folder: Path,
    windows: np.ndarray,
    done: int,
    lines: list[str],
) -> None:
    state = {
        "identity": _identity(recipe, windows),
        "done": done,
        "head": head.state_dict(),
        "optimiser": optimiser.state_dict(),
    }
    with NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
        torch.save(state, file)
    Path(file.name).replace(folder / "state.pt")
    with NamedTemporaryFile("w", encoding="utf-8", dir=folder, suffix=".tmp", delete=False) as file:
        file.writelines(line + "\n" for line in lines)
    Path(file.name).replace(folder / "loss.jsonl")


def _resume(
    head: Eagle3Head, optimiser: torch.optim.Optimizer, recipe: Recipe, folder: Path, windows: np.ndarray
) -> int:
    path = folder / "state.pt"
    if not path.is_file():
        return 0
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        identity, done = state["identity"], int(state["done"])
        if identity != _identity(recipe, windows):
            raise HeadError(f"{path} was left by another recipe or other texts; name another folder, or remove it.")
        head.load_state_dict(state["head"])
        optimiser.load_state_dict(state["optimiser"])
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, UnpicklingError) as error:
        raise HeadError(f"{path} cannot be read ({str(error).splitlines()[0]}); remove it to begin anew.") from error
    return done


def _kept_lines(path: Path, done: int) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[:done] if done and path.is_file() else []
