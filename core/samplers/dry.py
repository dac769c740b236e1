"""DRY, don't repeat yourself: makes tokens less probable that would continue a repetition.

Source: P. E. Weidmann, pull request 5677 of oobabooga/text-generation-webui (2024); llama.cpp has the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import Rule, in_range

_DEFAULT = default_numbers("dry")
BREAKERS = (b"\n", b":", b'"', b"*")  # the source's: a token with one of them ends a repetition
LONGEST = 50  # tokens of a repetition that count: their penalty leaves no probability at any base of the options


def breakers(pieces: Iterable[bytes], marks: Sequence[bytes] = BREAKERS) -> frozenset[int]:
    """The ids of the tokens that contain a breaker, from the bytes of all tokens."""
    return frozenset(n for n, piece in enumerate(pieces) if any(each in piece for each in marks))


class DRY(Rule):
    """Subtracts multiplier · base^(n - allowed) from the logit of a token that followed the text's last n tokens
    before, for the largest such n, if n is at least `allowed`. A repetition does not extend over a breaker, and no
    breaker gets a penalty.

    This rule drops no token and changes logits, so its penalties belong before the temperature: `catalog.sampler`
    applies it there if it is the first rule. Without `input_ids` it changes nothing. On a GPU it waits for the ids.
    """

    title = "DRY"
    reads_text = True

    def __init__(
        self,
        multiplier: float = _DEFAULT["multiplier"],
        base: float = _DEFAULT["base"],
        allowed: int = int(_DEFAULT["allowed"]),
        breakers: Set[int] = frozenset(),
        last: int | None = None,
    ) -> None:
        """
        Args:
            multiplier: the penalty of a repetition of `allowed` tokens, 0 (no effect) or more.
            base: factor for each further token, 1 or more.
            allowed: shortest repetition with a penalty, at least 1.
            breakers: ids of tokens that end a repetition; `breakers` finds them.
            last: the number of the text's last tokens that count, at least 1; None: all.
        Raises: InputError.
        """
        in_range("multiplier", multiplier, 0, float("inf"))
        in_range("base", base, 1, float("inf"))
        in_range("allowed", allowed, 1, float("inf"))
        in_range("last", 1 if last is None else last, 1, float("inf"))
        self.multiplier, self.base, self.allowed, self.breakers = multiplier, base, allowed, breakers
        self.last = last

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        x = x.clone()
        if input_ids is None:
            return x
        for row, ids in zip(x, input_ids.tolist(), strict=True):
            counted = ids if self.last is None else ids[-self.last :]
            for token, n in repeated(counted, self.breakers).items():
                if n >= self.allowed and token < len(row):
                    row[token] -= self.multiplier * self.base ** (n - self.allowed)
        return x


def repeated(ids: list[int], breakers: Set[int]) -> dict[int, int]:
    """For each token that followed the text's end before, the largest number of tokens of that end; at most LONGEST."""
    lengths: dict[int, int] = {}
    if not ids or ids[-1] in breakers:
        return lengths
    last, end = ids[-1], len(ids) - 1
    at = -1
    while True:
        try:
            at = ids.index(last, at + 1, end)
        except ValueError:
            return lengths
        if (token := ids[at + 1]) in breakers:
            continue
        n = 1
        while n < LONGEST and n <= at and ids[at - n] == ids[end - n] and ids[end - n] not in breakers:
            n += 1
        lengths[token] = max(n, lengths.get(token, 0))
