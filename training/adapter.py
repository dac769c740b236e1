"""Trains a low-rank adapter (LoRA, arXiv 2106.09685) on token ids.

The model's weights are frozen, so a step costs the arithmetic of two passes instead of three. The logits of a whole
step are never in memory: the output layer's loss and the gradient of its input are computed a few positions at a time.
A CPU trains one piece after the other, because several at once would take more memory and no less time; a GPU trains as
many at once as its memory allows.

Shapes: N pieces of T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import psutil
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from core.errors import InputError
from core.models.adapter import PROJECTIONS, Adapter, LowRank, Projection, projections
from core.models.memory import free_bytes
from core.models.torch_model import TorchModel

AT_ONCE = 64  # positions whose logits are in memory at the same time
AT_ONCE_ON_GPU = 8192
OF_FREE_MEMORY = 0.7  # the share of a GPU's free memory that the pieces trained at once may take
# transformers' names of the families that compiled code computes; Gemma 3 without images
FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "smollm3",
    "phi3",
    "olmo2",
    "olmo3",
    "granite",
)
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
CURVE = 8  # evaluations on held-out text during a run
SAVE_EVERY = 60.0  # seconds
TIMED_ROWS = 256


@dataclass(frozen=True)
class AdapterRecipe:
    """The hyperparameters.

    Attributes:
        rank: r of A (r, in) and B (out, r).
        alpha: the change is alpha / rank · B A.
        places: the adapted projections, by name.
        rate: the highest learning rate of AdamW; it rises for `warm_up` steps and falls linearly to a tenth.
        length: tokens of a piece.
        batch: pieces per step.
        epochs: how often each piece is trained.
        replays: the number of earlier pieces, sampled at random, per new piece, when training continues with new text.
        clip: of the gradient's norm.
        seed: of the order of the pieces and the first A.
    """

    rank: int = 8
    alpha: float = 16.0
    places: tuple[str, ...] = ("q_proj", "v_proj", "o_proj", "down_proj")
    rate: float = 1e-3
    length: int = 256
    batch: int = 4
    epochs: int = 1
    replays: int = 1
    warm_up: int = 5
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := [name for name in self.places if name not in PROJECTIONS]:
            raise InputError(f"Projections {unknown} given; some of {', '.join(PROJECTIONS)} expected.")
        for name in ("rank", "length", "batch", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} given; at least 1 expected.")
        if not (self.rate > 0 and self.places):
            raise InputError(f"rate {self.rate} and places {list(self.places)} given; both are needed.")

    def identity(self) -> dict[str, Any]:
        """Returns the fields that a state depends on; the others may change from one run to the next."""
        return {name: getattr(self, name) for name in ("rank", "alpha", "places", "length", "seed")}

    def rate_at(self, step: int, passed: float) -> float:
        """Returns the learning rate of a run's step, given the share of the run that has passed."""
        return self.rate * min((step + 1) / self.warm_up, 1.0) * (1 - 0.9 * min(passed, 1.0))


class Student:
    """A model of a family that compiled code knows, with trainable adapters; its own weights are frozen.

    Attributes:
        projections: the trainable matrices by layer and name.
        dtype: of the frozen products: float32, or bfloat16 if this machine multiplies it faster.
        device: the device of the model's weights; matrices and gradients are there too.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        recipe: AdapterRecipe,
        dtype: torch.dtype | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        """Replaces the projections of `module`, a float32 model, by adapted ones.

        Args:
            check_cancelled: called before every layer, forward and backward; it may wait, or raise to end the
                computation.
        Raises: InputError for a model of another family.
        """
        self._module: Any = module.eval().requires_grad_(False)
        self.device = module.device
        c = self._module.config
        if c.model_type not in FAMILIES:
            raise InputError(f"Adapters are trained for models of {', '.join(FAMILIES)}; this one is {c.model_type}.")
        _divide_fused(module)
        linear_layers = {
            projection: each
            for projection, each in projections(module.named_modules()).items()
            if isinstance(each, nn.Linear)
        }
        self.dtype = dtype or faster_dtype(linear_layers[min(linear_layers)].weight)
        rng = torch.Generator().manual_seed(recipe.seed)
        self.projections: dict[Projection, _Adapted] = {}
        names = {id(each): name for name, each in module.named_modules()}
        for projection, each in sorted(linear_layers.items()):
            rank = recipe.rank if projection[1] in recipe.places else 0
            adapted = _Adapted(each, rank, recipe.alpha, self.dtype, rng)
            parent, _, name = names[id(each)].rpartition(".")
            setattr(module.get_submodule(parent), name, adapted)
            if rank:
                self.projections[projection] = adapted
        for i, layer in enumerate(self._module.model.layers):
            layer.register_forward_pre_hook(lambda *_: check_cancelled())
            if i:  # the input of the first one has no gradient
                layer.register_full_backward_pre_hook(lambda *_: check_cancelled())
        output: Any = module.get_output_embeddings()
        factor = 1 / getattr(c, "logits_scaling", 1.0)
        self._output = (factor * output.weight.detach()).to(self.dtype)  # (V, D)
        self._cap: float | None = getattr(c, "final_logit_softcapping", None)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [x for adapted in self.projections.values() for x in (adapted.a, adapted.b)]

    def maps(self) -> dict[Projection, LowRank]:
        """Returns copies of the adapters' matrices."""
        return {
            projection: LowRank(each.a.detach().to("cpu", copy=True), each.b.detach().to("cpu", copy=True))
            for projection, each in self.projections.items()
        }

    def loss(self, ids: Tensor, counted: Tensor | None = None) -> Tensor:
        """Returns the mean of -ln p over the next tokens of pieces (N, T), with gradients; over those alone that are
        `counted` (N, T), if given."""
        ids = ids.to(self.device)
        hidden, wanted = self._hidden(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()  # (N · (T - 1), D)
        if counted is not None:
            chosen = counted[:, 1:].flatten().to(self.device)
            hidden, wanted = hidden[chosen], wanted[chosen]
        return _CrossEntropy.apply(hidden, self._output, wanted, self._cap)  # pyright: ignore[reportReturnType]

    @torch.no_grad()
    def logprobs(self, ids: Tensor, strength: float = 1.0) -> Tensor:
        """Returns ln p (T - 1,) float32, on the CPU, of each token of a piece (T,) after the first; at strength 0, of
        the model alone."""
        ids = ids.to(self.device)
        for each in self.projections.values():
            each.strength = strength
        try:
            hidden = self._hidden(ids[None, :-1])[0]
        finally:
            for each in self.projections.values():
                each.strength = 1.0
        parts = []
        size = _at_once(self.device)
        for some, wanted in zip(hidden.split(size), ids[1:].split(size), strict=True):
            logits = _capped(F.linear(some.to(self.dtype), self._output).float(), self._cap)
            parts.append(logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0])
        return torch.cat(parts).cpu()

    def bytes_per_piece(self, length: int) -> int:
        """Returns an estimate of the memory that training one piece needs, without the weights."""
        c = self._module.config
        of_layer = 18 * c.hidden_size + 8 * c.intermediate_size  # numbers per token, measured
        logits = 3 * AT_ONCE * len(self._output)
        return 4 * (length * (of_layer * c.num_hidden_layers + 2 * c.hidden_size) + logits)

    def pieces_at_once(self, length: int, batch: int) -> int:
        """Returns how many of the pieces of a step are trained at once: on a CPU one; on a GPU so many that its free
        memory suffices for them and for the other groups of the step, which are equally large."""
        if self.device.type == "cpu":
            return 1
        fitting = int(OF_FREE_MEMORY * free_bytes(self.device) / self.bytes_per_piece(length))
        groups = -(-batch // max(fitting, 1))
        return -(-batch // groups)

    def check_memory(self, length: int, memory: float, command: str) -> None:
        """Raises InputError, which names the command, if training pieces of this length on a CPU needs more memory
        (GB)."""
        if self.device.type != "cpu":
            return
        needed = (psutil.Process().memory_info().rss + self.bytes_per_piece(length)) / 1e9
        if needed > memory:
            raise InputError(
                f"{memory:g} GB of memory given; training this model needs {needed:.1f} GB. Run `{command}` with "
                f"--memory {math.ceil(10 * needed) / 10:g}."
            )

    def _hidden(self, ids: Tensor) -> Tensor:
        """Returns the input of the output layer, (N, T, D)."""
        # A GPU reads and writes half as many bytes in 16 bits; norms and sums stay in 32.
        rounded = self.device.type != "cpu" and self.dtype != torch.float32
        with torch.autocast(self.device.type, self.dtype, enabled=rounded):
            return self._module.model(input_ids=ids, use_cache=False).last_hidden_state


def merge(model: TorchModel, adapter: Adapter) -> None:
    """Adds the change of an adapter at full strength to the weights of a model with transformers' layers, whose
    fingerprint becomes the adapter's identity. Raises AdapterError if it does not fit."""
    modules = projections(model.layers.module.named_modules())
    adapter.check({model.fingerprint}, model.layers.projections)
    for projection, low in adapter.maps.items():
        weight: Any = modules[projection].weight
        weight.data += (adapter.scale * low.b @ low.a).to(weight.device, weight.dtype)
    model.fingerprint = adapter.identity


def _divide_fused(module: PreTrainedModel) -> None:
    """Replaces each matrix that has several projections, as Phi 3's, by one matrix for each."""
    c: Any = module.config
    for path, each in list(module.named_modules()):
        parent, _, name = path.rpartition(".")
        if name not in FUSED or not isinstance(each, nn.Linear):
            continue
        width = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        keys = width * c.num_key_value_heads
        sizes = {"qkv_proj": (len(each.weight) - 2 * keys, keys, keys)}.get(name, (len(each.weight) // 2,) * 2)
        outer: Any = module.get_submodule(parent)
        for part, rows in zip(FUSED[name], each.weight.detach().split(sizes), strict=True):
            linear = nn.Linear(*rows.shape[::-1], bias=False, device="meta")
            linear.weight = nn.Parameter(rows, requires_grad=False)
            setattr(outer, part, linear)
        setattr(outer, name, _Joined(outer, FUSED[name]))


class _Joined(nn.Module):
    """Computes several projections of a module and joins their outputs."""

    def __init__(self, outer: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self._outer, self._names = (outer,), names  # a tuple, or `outer` would be a submodule of its own

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([getattr(self._outer[0], name)(x) for name in self._names], -1)


class _Adapted(nn.Module):
    """A frozen projection with a trainable low-rank change."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dtype: torch.dtype, rng: torch.Generator) -> None:
        super().__init__()
        self._weight, self._bias = linear.weight.detach().to(dtype), linear.bias
        self.strength = 1.0 if rank else 0.0
        out, inputs = linear.weight.shape
        bound = 1 / math.sqrt(inputs)  # A is initialised as in `peft`; B is zero, so training begins with the model
        a = (2 * torch.rand(rank, inputs, generator=rng) - 1) * bound
        device = linear.weight.device
        self.a, self.b = nn.Parameter(a.to(device)), nn.Parameter(torch.zeros(out, rank, device=device))
        self.scale = alpha / max(rank, 1)

    def forward(self, x: Tensor) -> Tensor:
        rounded = x.to(self._weight.dtype)
        y = F.linear(rounded, self._weight)
        if torch.is_autocast_enabled(x.device.type):
            x = rounded
        y = y.to(x.dtype)
        if self._bias is not None:
            y = y + self._bias
        scale = self.strength * self.scale
        return y + scale * F.linear(F.linear(x, self.a), self.b) if scale else y


class _CrossEntropy(torch.autograd.Function):
    """Computes the mean cross-entropy of a linear output layer without bias, together with the gradient, so that no
    logits are kept."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, wanted: Tensor, cap: float | None) -> Tensor:
        """Returns a scalar from hidden (n, D), weight (V, D), the ids of the next tokens, `wanted` (n,), and the cap of
        the logits."""
        slope = torch.empty_like(hidden)
        total = hidden.new_zeros((), dtype=torch.float64)
        size = _at_once(hidden.device)
        for at in range(0, len(hidden), size):
            part = slice(at, at + size)
            logits = _capped(F.linear(hidden[part].to(weight.dtype), weight).float(), cap)
            slopes = None if cap is None else 1 - (logits / cap) ** 2  # of the cap
            places = wanted[part, None]
            norm = logits.logsumexp(-1, keepdim=True)
            total += (norm - logits.gather(1, places)).sum()
            p = logits.sub_(norm).exp_()
            p.scatter_add_(1, places, torch.full_like(places, -1, dtype=p.dtype))
            p = p if slopes is None else p.mul_(slopes)
            slope[part] = (p.to(weight.dtype) @ weight).float()
        ctx.save_for_backward(slope.div_(len(hidden)))
        return (total / len(hidden)).to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * grads[0], None, None, None


def _at_once(device: torch.device) -> int:
    return AT_ONCE if device.type == "cpu" else AT_ONCE_ON_GPU


def _capped(logits: Tensor, cap: float | None) -> Tensor:
    """Returns the logits within ± cap, as Gemma 2 computes them."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def faster_dtype(weight: Tensor) -> torch.dtype:
    """Returns bfloat16 if this machine multiplies TIMED_ROWS inputs by the weight at least a fifth faster in it, else
    float32. A GPU that has it multiplies it faster."""
    if weight.device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    x, seconds = torch.randn(TIMED_ROWS, weight.shape[1]), {}
    for dtype in (torch.float32, torch.bfloat16):
        given, w = x.to(dtype), weight.detach().to(dtype)
        times = []
        for _ in range(6):
            began = time.perf_counter()
            F.linear(given, w)
            times.append(time.perf_counter() - began)
        seconds[dtype] = min(times)
    return torch.bfloat16 if 1.2 * seconds[torch.bfloat16] < seconds[torch.float32] else torch.float32


@dataclass
class State:
    """The state of a training, from which it resumes or continues with more text.

    Attributes:
        tensors: the matrices and AdamW's moments, by name.
        times: how often each piece was trained.
        learnt: the number of tokens of the store's documents up to the end of the training text.
        steps: of the optimiser.
        spent: seconds of training.
        curve: (tokens trained, mean ln p on held-out text).
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    learnt: int = 0
    steps: int = 0
    spent: float = 0.0
    curve: list[tuple[int, float]] = field(default_factory=list)

    def to_bytes(self, identity: str) -> bytes:
        """Returns the contents of a safetensors file with the identity of the training."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tensors"}
        return safetensors.torch.save(self.tensors, {"identity": identity, "state": json.dumps(values)})

    @staticmethod
    def of(tensors: dict[str, Tensor], metadata: Mapping[str, Any], identity: str) -> State | None:
        """Makes a state from the contents of such a file; None for another identity. Raises InputError if the file is
        damaged."""
        if metadata.get("identity") != identity:
            return None
        try:
            contents = json.loads(metadata["state"])
            times = [int(n) for n in contents["times"]]
            curve = [(int(tokens), float(value)) for tokens, value in contents["curve"]]
            learnt, steps, spent = int(contents["learnt"]), int(contents["steps"]), float(contents["spent"])
            return State(tensors, times, learnt, steps, spent, curve)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"The state of the training is damaged ({error}).") from error


def saving(
    steps: Iterator[Progress], write: Callable[[], None], clock: Callable[[], float] = time.monotonic
) -> Generator[Progress]:
    """Yields the steps of a run. Calls `write` every SAVE_EVERY seconds, and at the end if there was a step since,
    however the run ends."""
    saved, unsaved = clock(), False
    try:
        for at in steps:
            unsaved = True
            yield at
            if clock() - saved > SAVE_EVERY:
                write()
                saved, unsaved = clock(), False
    finally:
        if unsaved:
            write()


@dataclass(frozen=True)
class Progress:
    """The figures after a step of a run: steps done and planned, the mean loss of its pieces, and the mean ln p on
    held-out text if it was evaluated."""

    step: int
    steps: int
    loss: float
    held_out: float | None = None


class Trainer:
    """Trains a student's adapters, from a state if there is one. `run` may be stopped after any step, and `state` may
    be called between any two steps."""

    def __init__(
        self,
        student: Student,
        pieces: np.ndarray,
        recipe: AdapterRecipe,
        state: State | None = None,
        counted: np.ndarray | None = None,
    ) -> None:
        """
        Args:
            pieces: (N, T) ids; they begin with the pieces that the state was trained on.
            state: it is not changed. Raises InputError if it does not fit.
            counted: (N, T), whether the prediction of a token is trained; None for all.
        """
        self._student, self._pieces, self._recipe = student, torch.from_numpy(pieces.astype(np.int64)), recipe
        self._counted = None if counted is None else torch.from_numpy(counted)
        state = state or State()
        self._times = [*state.times, *[0] * (len(pieces) - len(state.times))]
        if len(self._times) > len(pieces):
            raise InputError(f"A state of {len(state.times)} pieces given for {len(pieces)}.")
        self._optimiser = torch.optim.AdamW(student.parameters, lr=recipe.rate, betas=(0.9, 0.99), weight_decay=0.0)
        self._at_once = student.pieces_at_once(self._pieces.shape[1], recipe.batch)
        self.steps, self.spent, self.curve = state.steps, state.spent, list(state.curve)
        continued = min(state.times, default=0) >= recipe.epochs  # new text was added after a complete training
        self._replays = recipe.replays if continued else 0
        # Steps before this call; the order of the pieces and the rate continue after them.
        self._begun = 0 if continued else sum(state.times) // recipe.batch
        if state.tensors:
            self._restore(state)

    def state(self, learnt: int) -> State:
        """Returns a copy of the current state; see `State`."""
        tensors: dict[str, Tensor] = {}
        for name, x in self._named():
            tensors[name] = x.detach().to("cpu", copy=True)
            for moment, value in self._optimiser.state.get(x, {}).items():
                tensors[f"{name}.{moment}"] = value.to("cpu", copy=True)
        return State(tensors, list(self._times), learnt, self.steps, self.spent, list(self.curve))

    @property
    def complete(self) -> bool:
        """Whether every piece was trained as often as the recipe requires."""
        return min(self._times, default=0) >= self._recipe.epochs

    @property
    def share(self) -> float:
        """The share of the recipe's work that is done."""
        epochs = self._recipe.epochs
        return sum(min(times, epochs) for times in self._times) / (epochs * max(len(self._times), 1))

    @property
    def tokens(self) -> int:
        """The number of tokens that were trained at least once."""
        return sum(times > 0 for times in self._times) * self._pieces.shape[1]

    @property
    def trained(self) -> int:
        """The number of tokens that were trained, each counted as often as it was."""
        return sum(self._times) * self._pieces.shape[1]

    def run(
        self,
        seconds: float = math.inf,
        held_out: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[Progress]:
        """Trains the remaining pieces until the time is over; at least one step.

        Without a limit of time, a training that was stopped between two steps and resumed gives the same adapter as one
        that was not. With one, the rate falls within the time of each call.

        Args:
            held_out: evaluates the mean ln p on held-out text, at the start and several times during the run.
        """
        recipe, began = self._recipe, clock()
        queue = self._queue()
        done = self._begun if math.isinf(seconds) else 0
        steps = done + -(-len(queue) // recipe.batch)
        spent = self.spent
        if held_out and queue and not self.curve:
            self.curve.append((0, held_out()))
        for step in range(done, steps):
            passed = max(step / steps, (clock() - began) / max(seconds, 1e-9))
            for group in self._optimiser.param_groups:
                group["lr"] = recipe.rate_at(step, passed)
            at = (step - done) * recipe.batch
            chosen = queue[at : at + recipe.batch]
            loss = self._step(chosen)
            self.steps += 1
            self.spent = spent + clock() - began
            last = step + 1 == steps or clock() - began >= seconds
            mean = None
            if held_out and (last or (step + 1) % max(steps // CURVE, 1) == 0):
                mean = held_out()
                self.curve.append((self.trained, mean))
            yield Progress(step + 1, steps, loss, mean)
            if last:
                return

    def _step(self, chosen: list[int]) -> float:
        """Trains these pieces, `Student.pieces_at_once` at a time. The loss of each group is a mean over its tokens."""
        self._optimiser.zero_grad()
        total = torch.zeros((), device=self._student.device)
        for at in range(0, len(chosen), self._at_once):
            group = chosen[at : at + self._at_once]
            counted = None if self._counted is None else self._counted[group]
            loss = self._student.loss(self._pieces[group], counted) * (len(group) / len(chosen))
            loss.backward()
            total += loss.detach()
        norm = float(torch.nn.utils.clip_grad_norm_(self._student.parameters, self._recipe.clip))
        if not math.isfinite(norm):
            raise InputError(
                f"The loss is not finite at step {self.steps + 1}; the rate {self._recipe.rate:g} is high."
            )
        self._optimiser.step()
        for piece in chosen:
            self._times[piece] += 1
        return float(total)

    def _queue(self) -> list[int]:
        """Returns the pieces to train, in their order: in every round the untrained ones, each with some earlier
        ones."""
        recipe, rng = self._recipe, np.random.default_rng((self._recipe.seed, self.steps))
        earlier = [piece for piece, times in enumerate(self._times) if times >= recipe.epochs]
        queue: list[int] = []
        for epoch in range(recipe.epochs):
            # The order does not depend on where an earlier call stopped.
            order = np.random.default_rng((recipe.seed, epoch)).permutation(len(self._times)).tolist()
            for piece in order:
                if self._times[piece] > epoch:
                    continue
                queue.append(piece)
                if earlier:
                    queue += rng.choice(earlier, self._replays).tolist()
        return queue

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        for (layer, name), adapted in self._student.projections.items():
            yield f"{layer}.{name}.a", adapted.a
            yield f"{layer}.{name}.b", adapted.b

    def _restore(self, state: State) -> None:
        for name, x in self._named():
            parts = {part: state.tensors.get(f"{name}{part}") for part in ("", ".exp_avg", ".exp_avg_sq", ".step")}
            weights, first, second, step = parts.values()
            if weights is None or weights.shape != x.shape:
                raise InputError("The state of the training is of another recipe or model.")
            with torch.no_grad():
                x.copy_(weights)
            if first is not None and second is not None and step is not None and first.shape == second.shape == x.shape:
                moments = {"exp_avg": first.to(x.device), "exp_avg_sq": second.to(x.device)}
                self._optimiser.state[x] = {"step": step, **moments}
