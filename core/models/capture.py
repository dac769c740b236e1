"""Functions that a GPU replays as one graph, captured for a few sizes.

A captured function reads and writes at fixed addresses, so its sizes are fixed too: callers round them up to a power of
two, and each size is captured once. Without CUDA the same functions run uncaptured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from core.errors import ContextFull

Compute = Callable[[Tensor], tuple[Tensor, ...]]
Key = tuple[Hashable, ...]


class Graphs:
    """Captured functions by key, on one device.

    Attributes:
        captured: the functions captured so far.
        pool: the memory that all of them share, because the result of one is used before another one runs. None
            without CUDA.
    """

    def __init__(self, device: torch.device, pool: Any = None) -> None:
        """`pool`: of other graphs on this device, to share it with them."""
        self.captured: dict[Key, Captured] = {}
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" and pool is None else pool
        self._device = device

    def __call__(self, key: Key, compute: Compute, fed: Tensor, harmless: Tensor | None = None) -> tuple[Tensor, ...]:
        """The result of `compute` for `fed`, on the device; valid until the next call of any function that shares the
        pool.

        Args:
            key: everything that `compute` depends on besides `fed` and the tensors at fixed addresses.
            fed: on the host; the one copy to the device.
            harmless: the input for warm-up, if computing `fed` several times has another effect than once.
        Raises: ContextFull when the device's memory is full.
        """
        try:
            if key not in self.captured:
                first = fed if harmless is None else harmless
                self.captured[key] = Captured(compute, first, self._device, self.pool)
            return self.captured[key](fed)
        except torch.OutOfMemoryError as error:
            raise memory_full(str(self._device)) from error

    def clear(self) -> None:
        self.captured.clear()


class Captured:
    """A function of one tensor, at fixed addresses: captured with CUDA, run directly elsewhere."""

    def __init__(self, compute: Compute, fed: Tensor, device: torch.device, pool: Any) -> None:
        """`fed` is the input of the warm-up runs, which must not overwrite data in use."""
        self._compute = compute
        self._fed = fed.to(device, copy=True)
        self.graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._capture(device, pool)

    def __call__(self, fed: Tensor) -> tuple[Tensor, ...]:
        self._fed.copy_(fed)
        if self.graph is None:
            return self.uncaptured()
        self.graph.replay()
        return self._found

    def uncaptured(self) -> tuple[Tensor, ...]:
        """Repeats the last input without the graph."""
        with torch.inference_mode():
            return self._compute(self._fed)

    def _capture(self, device: torch.device, pool: Any) -> None:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose their kernels and compilers compile during warm-up
                self.uncaptured()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            self._found = self._compute(self._fed)
        self.graph = graph


def bucket(n: int, least: int) -> int:
    """The smallest power of two times `least` that is n or more."""
    size = least
    while size < n:
        size *= 2
    return size


def sent(values: list[int], device: torch.device) -> Tensor:
    """Numbers (n,) int64 on a device, copied without waiting for its running work."""
    gpu = device.type == "cuda"
    return torch.tensor(values, dtype=torch.long, pin_memory=gpu).to(device, non_blocking=gpu)


def memory_full(device: str) -> ContextFull:
    return ContextFull(f"The memory of {device} is full; close sequences or shorten the text.")
