"""One more pass, over complete drafts: the model's logits after each of their tokens.

Drafts are computed from mixed embeddings and with n-grams. This pass computes the model's own probabilities of them, in
one batch.
"""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor

from core.drafting.drafts import Drafts
from core.models.base import Row, Sequence


def score_paths(
    paths: list[list[int]], sequence: Sequence, drafts: Drafts
) -> Generator[tuple[list[Row], Drafts], list[Tensor], list[Tensor]]:
    """Yields one pass over paths of tokens that continue the sequence, which is not changed.

    Args:
        drafts: yielded with the pass.
    Returns: logits (n, V) after each token of each path.
    """
    forks: list[Sequence] = []
    try:
        forks.extend(sequence.fork() for _ in paths)
        return (yield [Row(fork, path, every=True) for fork, path in zip(forks, paths, strict=True)], drafts)
    finally:
        for fork in forks:
            fork.close()
