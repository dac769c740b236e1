"""Trains an EAGLE-3 head on the target's own features, with the head's own output fed back several times.

Training-time test (section 3.2 of arXiv 2503.01840). At inference, the head has the target's features only up to the
last accepted token; after it, the head's own output replaces them. So a training step unrolls the head: at step 0 every
position has the target's feature, at step j the output of step j-1, shifted by one token each time. A position at step
j attends only to the target's features before it and to its own chain of steps, so all positions of a text are trained
at once.

Shapes: B texts, T tokens each, D_t width of the target, V and V_d vocabularies of target and head.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError  # torch raises it for a file with more than tensors; nothing is unpickled
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from core.errors import InputError
from core.files import replacing, write_whole
from core.speculative.eagle3 import Eagle3Head, HeadError
from research.training.teacher import ModuleTeacher

RECENT = 250  # earlier batches from which replays are sampled
DECAY = 0.8  # of a step's weight in the loss, from one step to the next


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters.

    Attributes:
        steps: of the optimiser.
        batch: texts per step.
        unroll: steps of the training-time test.
        share: the share of a text's positions that are unrolled beyond the first step.
        replays: steps on earlier texts for each step on new ones; they cost less, because the target caches its states.
        rate: the highest learning rate; it rises for `warm_up` steps and falls as a cosine to a fiftieth.
        clip: of the gradient's norm.
        seed: of the order of the texts and of the first weights.
        save_every: steps between two states on disk.
    """

    steps: int = 2000
    batch: int = 8
    unroll: int = 4
    share: float = 1.0
    replays: int = 0
    rate: float = 1e-3
    warm_up: int = 20
    clip: float = 1.0
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "unroll", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} given; at least 1 expected.")
        if not self.rate > 0:
            raise InputError(f"rate {self.rate} given; above 0 expected.")

    def rate_at(self, step: int, passed: float = 0.0) -> float:
        """Returns the learning rate of a step, given the elapsed share of the time. The run ends after all steps or all
        of the time, whichever comes first."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        passed = max(passed, (step - self.warm_up) / max(self.steps - self.warm_up, 1))
        return self.rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(passed, 1.0))))


@dataclass
class Unrolled:
    """One unrolled pass: figures per step of the training-time test, each a mean over positions.

    Attributes:
        losses: cross-entropy with the target's distribution, in nats.
        overlaps: Σ min(p, q): the probability that lossless rejection sampling accepts the token.
        matches: whether the head's most probable token is the target's.
    """

    losses: list[Tensor]
    overlaps: list[float]
    matches: list[float]

    @property
    def loss(self) -> Tensor:
        weights = [DECAY**j for j in range(len(self.losses))]
        return torch.stack([w * loss for w, loss in zip(weights, self.losses, strict=True)]).sum() / sum(weights)


def draft_vocabulary(windows: np.ndarray, vocab_size: int, size: int) -> Tensor:
    """Returns the `size` most frequent tokens of the texts (N, T), sorted by id; of equally frequent ones, the lower
    ids."""
    counts = np.bincount(windows.ravel(), minlength=vocab_size)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:size]))


def new_head(teacher: ModuleTeacher, vocabulary: Tensor) -> Eagle3Head:
    """Returns an untrained head for a vocabulary (V_d,). It passes the high feature through, and uses the rows of the
    target's output layer after the target's last norm. It is a poor draft model, but far better than a random one.
    `training.first_weights` improves it."""
    config = teacher.config(len(vocabulary))
    head = Eagle3Head(config)
    head.set_vocabulary(vocabulary)
    d = config.hidden_size
    with torch.no_grad():
        head.lm_head.weight.copy_(teacher.output[vocabulary])
        if teacher.norm is not None:
            head.norm.weight.copy_(teacher.norm)
        head.fc.weight.mul_(0.1)
        head.fc.weight[:, 2 * d :] += torch.eye(d)
        head.midlayer.self_attn.o_proj.weight.mul_(0.1)
        head.midlayer.mlp.down_proj.weight.mul_(0.1)
    return head


def unrolled(
    head: Eagle3Head,
    teacher: ModuleTeacher,
    ids: Tensor,
    steps: int,
    whole: bool = True,
    share: float = 1.0,
    scale: Tensor | float = 1.0,
) -> Unrolled:
    """Runs the training-time test on texts (B, T), T > steps + 1.

    Args:
        whole: whether to use the target's distribution over its whole vocabulary, for exact figures; else its
            restriction to the draft vocabulary, which costs a sixth and trains equally well.
        share: the share of positions that are unrolled beyond step 0, sampled by torch's generator.
        scale: the features are divided by it, a number or (3·D_t,).
    """
    vocabulary = head.vocabulary
    logits, features = teacher(ids, None if whole else vocabulary)
    n = ids.shape[1] - 1  # the number of positions that have a feature and a next token
    p = logits[:, 1:].float().softmax(-1)  # (B, n, V or V_d): after the token that position t embeds
    best = p.argmax(-1)
    if whole:
        p = p[..., vocabulary]  # its sum is below 1 if the target may leave the draft vocabulary
    else:
        best = vocabulary[best]
    x = teacher.embeddings[ids[:, 1:]]  # (B, n, D_t)
    f = head.fuse(features[:, :-1] / scale)
    chains = _Chains(head, x)
    at = torch.arange(n, device=ids.device)  # the positions that are continued
    rolled = Unrolled([], [], [])
    for j in range(min(steps, n - 1)):
        if j == 1 and share < 1:
            at = torch.randperm(n, device=ids.device)[: max(round(share * n), 1)].sort().values
            f = f[:, at]
        f = chains.step(f, at, j)
        inside = at + j < n  # positions whose shifted target lies within the text
        places = at[inside] + j
        loss, overlap, matched = _compared(head.logits(f[:, inside]), p[:, places], vocabulary, best[:, places])
        rolled.losses.append(loss)
        rolled.overlaps.append(overlap)
        rolled.matches.append(matched)
    return rolled


class _Chains:
    """The head's layer over the texts (step 0), then along a chain of its own outputs from each position."""

    def __init__(self, head: Eagle3Head, x: Tensor) -> None:
        """`x` (B, n, D_t) are the embeddings of the tokens after the positions."""
        self._head, self._joined = head, head.joined()
        # At the next step, the embeddings' part is that of the next position. Beyond the text it is zero, and does not
        # affect the loss.
        of_tokens = head.of_tokens(x, self._joined)
        self._of_tokens = F.pad(of_tokens, (0, 0, 0, x.shape[1]))  # (B, 2n, …)
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def step(self, f: Tensor, at: Tensor, j: int) -> Tensor:
        """Returns the features (B, m, D) of step j + 1 from those of step j, at positions `at` (m,)."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, heads, m, w)
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1).to(q.dtype) for x in (k, v))
            self._keys.append(k)
            self._values.append(v)
            if j == 0:
                return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            n, scale = self._keys[0].shape[2], q.shape[-1] ** -0.5
            hidden = torch.arange(n, device=at.device) > at[:, None]  # (m, n)
            text = (q @ self._keys[0].transpose(-1, -2) * scale).masked_fill(hidden, -torch.inf)  # (B, H, m, n)
            own = [(q * key).sum(-1, keepdim=True) * scale for key in self._keys[1:]]  # (B, H, m, 1) each
            weights = torch.cat((text, *own), -1).float().softmax(-1).to(v.dtype)
            mixed = weights[..., :n] @ self._values[0]
            for i, value in enumerate(self._values[1:]):
                mixed = mixed + weights[..., n + i : n + i + 1] * value
            return mixed.transpose(1, 2)

        return self._head.layer(self._of_tokens[:, at + j], f, at + j, self._joined, attend)


def _compared(z: Tensor, p: Tensor, vocabulary: Tensor, best: Tensor) -> tuple[Tensor, float, float]:
    """Returns the cross-entropy per unit of p's mass, the overlap and the share of matches, for logits z (B, m, V_d)
    and the target's p."""
    loss, overlap = _CrossEntropy.apply(z, p)  # pyright: ignore[reportGeneralTypeIssues]
    with torch.no_grad():
        matched = (vocabulary[z.argmax(-1)] == best).float().mean()
    return loss, float(overlap), float(matched)


class _CrossEntropy(torch.autograd.Function):
    """Computes -Σ p ln q / Σ p and the mean of Σ min(p, q), together with the gradient, so that large tensors are read
    once."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        log_q = z.float().log_softmax(-1)
        total = p.sum()
        loss = -torch.vdot(p.flatten(), log_q.flatten()) / total
        q = log_q.exp_()
        overlap = torch.minimum(p, q).sum(-1).mean()
        ctx.save_for_backward(q.mul_(p.sum(-1, keepdim=True)).sub_(p).div_(total).to(z.dtype))
        ctx.mark_non_differentiable(overlap)
        return loss, overlap

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return slope * grads[0], None


def train(
    head: Eagle3Head,
    teacher: ModuleTeacher,
    windows: np.ndarray,
    recipe: Recipe,
    folder: Path,
    progress: Callable[[int, float, list[float]], None] = lambda *_: None,
    minutes: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    scale: Tensor | None = None,
    rounded: bool = False,
) -> int:
    """Trains on texts (N, T) of ids, on the teacher's device, to which the head is moved. Continues from the state in
    `folder` if there is one for this recipe.

    Writes the state every `save_every` steps and at the end, and one line per step to `loss.jsonl`.

    Args:
        progress: called after each step with its number, its loss and the overlap of each depth.
        minutes: the time limit of all calls together. The same call continues from the state at its end. The rate falls
            with the elapsed share of the minutes or of the steps, whichever is larger, because the machine may be
            shared.
        scale: (3·D_t,) sizes of the features, by which steps are scaled as if features had size 1. A state contains its
            own.
        rounded: whether products are in bfloat16; weights and sums are in float32.
    Returns: the total number of steps done.
    Raises: HeadError for a state that cannot be read or is of another recipe.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scale = torch.ones(head.fc.in_features) if scale is None else scale
    device = teacher.module.device
    state = _State(head.to(device), scale.to(device))
    optimisers = _optimisers(state, recipe.rate)
    done, spent = _resume(state, optimisers, recipe, folder, windows)
    written = folder / "loss.jsonl"
    lines = written.read_text(encoding="utf-8").splitlines()[:done] if done and written.is_file() else []
    began = clock() - spent
    state.train()
    for step, batch in enumerate(batches(windows, recipe, done), start=done):
        passed = (clock() - began) / (60 * minutes)
        for group in (group for optimiser in optimisers for group in optimiser.param_groups):
            group["lr"] = recipe.rate_at(step, passed)
        torch.manual_seed(recipe.seed + step)
        with torch.autocast(device.type, torch.bfloat16, enabled=rounded):
            ids = torch.from_numpy(batch).to(device)
            rolled = unrolled(head, teacher, ids, recipe.unroll, False, recipe.share, state.scale)
        state.zero_grad()
        rolled.loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(state.parameters(), recipe.clip))
        if not math.isfinite(norm):
            raise HeadError(f"The loss is not finite at step {step + 1}; try a lower --rate than {recipe.rate:g}.")
        for optimiser in optimisers:
            optimiser.step()
        figures = {
            "step": step + 1,
            "loss": round(float(rolled.loss.detach()), 4),
            "losses": [round(float(loss.detach()), 4) for loss in rolled.losses],
            "overlaps": [round(value, 4) for value in rolled.overlaps],
            "matches": [round(value, 4) for value in rolled.matches],
        }
        lines.append(json.dumps(figures))
        done = step + 1
        spent = clock() - began
        late = spent > 60 * minutes
        if done % recipe.save_every == 0 or done == recipe.steps or late:
            _save(state, optimisers, recipe, folder, windows, done, spent, lines)
        progress(done, float(rolled.loss.detach()), rolled.overlaps)
        if late:
            break
    state.leave()
    head.eval()
    return done


class _State(torch.nn.Module):
    """The head during training. `fc` reads features divided by their sizes, which differ by orders of magnitude, so
    that a step of the optimiser affects all features equally."""

    scale: Tensor

    def __init__(self, head: Eagle3Head, scale: Tensor) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("scale", scale)
        with torch.no_grad():
            head.fc.weight.mul_(scale)

    def leave(self) -> None:
        """Converts the head back to the form for inference."""
        with torch.no_grad():
            self.head.fc.weight.div_(self.scale)


def _optimisers(state: _State, rate: float) -> list[torch.optim.Optimizer]:
    """Returns Muon for the matrices between hidden states, with steps of AdamW's size, and AdamW for the output layer
    and the norms."""
    maps, rest = [], []
    for name, weight in state.named_parameters():
        (maps if weight.ndim == 2 and "lm_head" not in name else rest).append(weight)
    return [
        torch.optim.Muon(maps, lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.01),
    ]


def batches(windows: np.ndarray, recipe: Recipe, done: int) -> Iterator[np.ndarray]:
    """Yields the batches from step `done` on: every text once per round, in an order given by seed and round, and after
    each batch `replays` earlier ones, sampled at random."""
    per_round = max(len(windows) // recipe.batch, 1)
    for step in range(done, recipe.steps):
        fresh, replay = divmod(step, 1 + recipe.replays)
        if replay:
            fresh = int(np.random.default_rng((recipe.seed, step)).integers(max(fresh - RECENT, 0), fresh + 1))
        number, at = divmod(fresh, per_round)
        order = np.random.default_rng((recipe.seed, number)).permutation(len(windows))
        yield windows[order[at * recipe.batch : (at + 1) * recipe.batch]].astype(np.int64)


def _identity(recipe: Recipe, windows: np.ndarray) -> str:
    """Returns the identity of a state's run. `steps` may be increased later."""
    chosen = {name: value for name, value in asdict(recipe).items() if name not in ("steps", "save_every")}
    return json.dumps({**chosen, "texts": list(windows.shape), "sum": int(windows.sum(dtype=np.int64))})


def _save(
    head: _State,
    optimisers: list[torch.optim.Optimizer],
    recipe: Recipe,
    folder: Path,
    windows: np.ndarray,
    done: int,
    spent: float,
    lines: list[str],
) -> None:
    state = {
        "identity": _identity(recipe, windows),
        "done": done,
        "spent": spent,
        "head": head.state_dict(),
        "optimisers": [optimiser.state_dict() for optimiser in optimisers],
    }
    with replacing(folder / "state.pt") as file:
        torch.save(state, file)
    write_whole(folder / "loss.jsonl", "".join(line + "\n" for line in lines).encode())


def _resume(
    head: _State, optimisers: list[torch.optim.Optimizer], recipe: Recipe, folder: Path, windows: np.ndarray
) -> tuple[int, float]:
    path = folder / "state.pt"
    if not path.is_file():
        return 0, 0.0
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        identity, done, spent = state["identity"], int(state["done"]), float(state["spent"])
        if identity != _identity(recipe, windows):
            raise HeadError(f"{path} is from another recipe or other texts; choose another folder, or remove it.")
        head.load_state_dict(state["head"])
        for optimiser, held in zip(optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(held)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, UnpicklingError) as error:
        raise HeadError(f"{path} cannot be read ({str(error).splitlines()[0]}); remove it to start again.") from error
    return done, spent
