"""A causal language model's layers as the torch engines call them: transformers' module, or `NativeLlama`.

It hides the differences between modules: accepted arguments, access to hidden states, widths of keys and
values, and attention windows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from core.errors import ModelFileError
from core.models.adapter import Adapter, LowRank, Projection, projections
from core.models.embeddings import Embeddings
from core.models.llama import NativeLlama

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    Module = PreTrainedModel | NativeLlama

# Exceptions of layers for a cache or a mask of an unsupported kind.
DOES_NOT_RUN = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


class Layers:
    """A module that is ready to compute.

    Attributes:
        module: the given module, without gradients.
        compiled: whether it is `NativeLlama`, which is called with lines (`native.Line`); the others by `__call__`.
        device, dtype: of its weights.
        arithmetic: how it computes, see `LanguageModel`.
        table: (V, D), the output of the embedding layer for each id; some models scale its weights.
        planes: (heads, width) of each layer's keys and of its values, in turn.
        windows: the attention window of each kind of layer, in positions; None for unlimited.
        takes_positions: whether positions can be given; else the module counts them from the mask.
    """

    def __init__(self, module: Module, name: str) -> None:
        """Raises ModelFileError for layers whose memory cannot be rewound."""
        self.module: Any = module.eval().requires_grad_(False)
        self.compiled = isinstance(module, NativeLlama)
        self.device: torch.device = module.device
        self.dtype: torch.dtype = module.dtype
        self.arithmetic = str(getattr(module, "arithmetic", module.dtype))
        self.table = module.embeddings if isinstance(module, NativeLlama) else _embedding_table(module)
        self.planes = module.planes if isinstance(module, NativeLlama) else _probe_planes(module, name)
        self.windows = _windows(module)
        self._hooks: list[RemovableHandle] = []  # of adapters, see `adapt`
        accepted = inspect.signature(module.forward).parameters
        self.takes_positions = self.compiled or "position_ids" in accepted
        self._keeps_some = "logits_to_keep" in accepted

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.planes) // 2

    @property
    def position_bytes(self) -> int:
        """Bytes of the keys and values of one position."""
        return sum(heads * width for heads, width in self.planes) * self.dtype.itemsize

    @property
    def projections(self) -> dict[Projection, tuple[int, int]]:
        """The shapes (out, in) of the projections that adapters can change; {} outside the Llama family."""
        if self.compiled:
            return self.module.projections
        return {projection: (linear.out_features, linear.in_features) for projection, linear in self._linears().items()}

    def adapt(self, adapters: Sequence[tuple[Adapter, float]]) -> None:
        """Computes with these adapters, each with its strength, which fit `projections`, in place of earlier ones."""
        if self.compiled:
            self.module.adapt(adapters)
            return
        for hook in self._hooks:
            hook.remove()
        linears = self._linears()
        self._hooks = [
            linears[projection].register_forward_hook(_adding(low, strength * adapter.scale, self.device, self.dtype))
            for adapter, strength in adapters
            for projection, low in adapter.maps.items()
        ]

    def _linears(self) -> dict[Projection, nn.Linear]:
        every = projections(self.module.named_modules())
        return {projection: linear for projection, linear in every.items() if isinstance(linear, nn.Linear)}

    def __call__(
        self,
        inputs: Tensor,
        cache: Any,
        keep: int | Tensor,
        *,
        mask: Tensor | dict[str, Tensor] | None = None,
        positions: Tensor | None = None,
        watched: tuple[int, ...] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """Computes one pass of transformers' module.

        Args:
            inputs: ids (B, n), or embeddings (B, n, D).
            cache: as the module expects it; new keys and values go there.
            keep: the inputs after which logits are computed: the number of last ones, or their indices.
            mask: (B, C) of zeros and ones, or see `core.models.rows.added_masks`; None for plain attention.
            positions: (B, n), or (1, n).
            watched: layers whose input hidden states are returned.
        Returns: logits (B, kept, V), and hidden states side by side (B, n, W) or None.
        """
        given: dict[str, Any] = {"inputs_embeds" if inputs.is_floating_point() else "input_ids": inputs}
        if mask is not None:
            given["attention_mask"] = mask
        if self.takes_positions:
            given["position_ids"] = positions
        if self._keeps_some:
            given["logits_to_keep"] = keep
        if watched:
            given["output_hidden_states"] = True
        output = self.module(**given, past_key_values=cache, use_cache=True, return_dict=True)
        logits: Tensor = output.logits
        if not self._keeps_some:
            logits = logits[:, -keep:] if isinstance(keep, int) else logits[:, keep]
        if not watched:
            return logits, None
        return logits, torch.cat([output.hidden_states[i] for i in watched], -1)


def _adding(low: LowRank, scale: float, device: torch.device, dtype: torch.dtype) -> Callable[..., Tensor]:
    """A hook that adds scale · B (A x) to the output of a projection."""
    a, b = low.a.to(device, dtype), (scale * low.b).to(device, dtype)

    def add(_: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output + nn.functional.linear(nn.functional.linear(given[0], a), b)

    return add


def embedding_weight(module: PreTrainedModel) -> Tensor:
    """The embedding layer's own table, (V, D)."""
    weight = module.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def _embedding_table(module: PreTrainedModel) -> Embeddings:
    layer, weight = module.get_input_embeddings(), embedding_weight(module)
    if type(layer) is nn.Embedding:
        table = weight.detach()
    else:
        with torch.no_grad():
            table = layer(torch.arange(weight.shape[0], device=weight.device))
    return Embeddings.of_tensor(table.to(device="cpu", dtype=torch.float32))  # no copy if it has this form already


def _probe_planes(module: PreTrainedModel, name: str) -> list[tuple[int, int]]:
    """The planes that one token adds to transformers' own cache."""
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = DynamicCache(config=module.config.get_text_config())
    with torch.inference_mode():
        module(
            input_ids=torch.zeros(1, 1, dtype=torch.long, device=module.device),
            past_key_values=cache,
            use_cache=True,
        )
    planes: list[tuple[int, int]] = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) or keys is None or values is None:
            raise ModelFileError(
                f"{name} has layers whose memory cannot be rewound ({type(layer).__name__}); choose a model "
                f"with plain attention."
            )
        planes += [(kept.shape[1], kept.shape[3]) for kept in (keys, values)]
    return planes


def _windows(module: Module) -> dict[str, int | None]:
    config = module.config.get_text_config()
    width = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if width else "full_attention"]
    return {kind: width if kind == "sliding_attention" else None for kind in dict.fromkeys(kinds)}
