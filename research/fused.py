"""The static cache with layers that torch.compile fuses before a step is captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, compile
from transformers.cache_utils import Cache

from core.errors import BackendUnavailable
from core.models.adapter import Adapter
from core.models.static import Columns, StaticModel
from core.models.torch_model import TorchModel

RECOMPILE = 256  # shapes


class FusedModel(StaticModel):
    """All layers share the result, because they have the same code."""

    def __init__(self, model: TorchModel, compiler: str, **options: Any) -> None:
        """
        Args:
            compiler: the name of a torch.compile backend ("inductor").
            options: as of `StaticModel`.
        """
        self._fused = _fused(model.layers.module, compiler)
        super().__init__(model, **options)

    def adapt(self, adapters: Sequence[tuple[Adapter, float]]) -> None:
        if adapters:
            raise BackendUnavailable(f"{self.name} runs fused by torch.compile, which does not use adapters.")

    def _stepped(self, fed: Tensor, first: int, columns: int) -> tuple[Tensor, ...]:
        """Only steps are fused, because each length of input would need its own compilation."""
        for layer, forward in self._fused:
            layer.forward = forward
        try:
            return super()._stepped(fed, first, columns)
        finally:
            for layer, _ in self._fused:
                del layer.forward  # the method of its class


def _fused(module: Any, compiler: str) -> list[tuple[Any, Callable[..., Any]]]:
    """Each layer of a module with its compiled `forward`. All of them share one compilation for each shape of their
    inputs. Raises BackendUnavailable for a module without a list of layers."""
    from torch._dynamo import config

    layers = getattr(module.get_decoder(), "layers", None)
    if layers is None:
        raise BackendUnavailable(f"{type(module).__name__} has no list of layers that torch.compile could fuse.")
    config.recompile_limit = max(config.recompile_limit, RECOMPILE)  # torch gives up after 8
    # Products with one row of inputs become reductions, which with this tuning read weights at the memory's full speed.
    options: dict[str, Any] | None = {"coordinate_descent_tuning": True} if compiler == "inductor" else None

    def fused(number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        compiled = compile(forward, backend=compiler, dynamic=False, options=options)
        return lambda *args, past_key_values, **kwargs: compiled(
            *args, past_key_values=_LayersColumns(past_key_values, number), **kwargs
        )

    return [(layer, fused(number, layer.forward)) for number, layer in enumerate(layers)]


class _LayersColumns(Cache):
    """The columns of one layer. It does not read the layer's number, because compiled code would then differ by
    layer."""

    def __init__(self, of_all: Columns, number: int) -> None:
        super().__init__(layers=[])
        self._only = Columns(of_all.planes[2 * number : 2 * number + 2], of_all.at[:, 0, :, 0], of_all.columns)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self._only.update(key_states, value_states, 0)
