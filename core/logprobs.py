"""The model's own log-probabilities of finished drafts, token by token, for programs that request them.

They are ln q(token | text, earlier tokens of the draft): τ = 1, no rule, no n-grams, no mixed embedding. The first
token in a half-typed word has that of continuing the word.

Of sampled drafts a program may request the probabilities by which they were drawn instead: after rule and τ, among the
tokens that are left.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import Boundaries, mask_others
from core.drafting.candidates import crop_logits
from core.drafting.drafts import Drafts, Options
from core.drafting.scored import score_paths
from core.models.base import Row, Sequence, Tokenizer
from core.models.tokenizer import BYTES, written
from core.present import Presentation, TextDraft, TokenLogprob

ModelLogprobs = dict[tuple[int, ...], tuple[TokenLogprob, ...]]  # by the tokens of a draft


@dataclass(frozen=True)
class LogprobsPass:
    """The pass that computes them.

    Attributes:
        presentation: how the drafts are shown.
        likeliest: the number of most probable tokens at each position.
        boundaries: where the drafts may begin.
        drawn: the tokens before the drafts and the options of drawing, for the probabilities after the rule; None for
            the model's own.
    """

    presentation: Presentation
    likeliest: int
    boundaries: Boundaries
    drawn: tuple[list[int], Options] | None = None

    def __call__(
        self, drafts: Drafts, shown: list[TextDraft], sequence: Sequence, logits: list[Tensor]
    ) -> Generator[tuple[list[Row], Drafts], list[Tensor], ModelLogprobs]:
        """Yields the pass. Returns the log-probabilities of the visible tokens.

        Args:
            shown: the rows of the drafts.
            sequence: holds the prefix.
            logits: (V,) after the prefix, then after each token of the half-typed word, as far as they are cached.
        """
        rows = [row for row in shown if row.ids]
        if not rows:
            return {}
        after = yield from score_paths([list(row.ids) for row in rows], sequence, replace(drafts, done=False))
        return {row.ids: self._read(row, logits, x) for row, x in zip(rows, after, strict=True)}

    def _read(self, row: TextDraft, logits: list[Tensor], after: Tensor) -> tuple[TokenLogprob, ...]:
        """The log-probabilities of one draft, from the logits (n, V) after each of its tokens."""
        start = max(len(row.ids) - len(row.path), 0) if row.path else 0
        tokens: list[TokenLogprob] = []
        shown, ends = 0, self.presentation.ends(list(row.ids))
        for n in range(start, len(row.ids)):
            end = ends[n + 1]
            if end > len(row.text):
                break
            typed, allowed = b"", None
            if n > start:
                x = after[n - 1]
            else:  # of a half-typed word only its continuation counts
                x = logits[n] if n < len(logits) else after[n - 1]
                allowed = self.boundaries.allowed(n)
                typed = self.presentation.typed[sum(len(self.presentation.tokenizer.pieces[i]) for i in row.ids[:n]) :]
            logp = torch.log_softmax(self._left(x, row, n, allowed).float(), 0)
            tokenizer, token = self.presentation.tokenizer, row.ids[n]
            likeliest = likeliest_tokens(tokenizer, logp, self.likeliest, typed)
            text, name = row.text[shown:end], token_name(tokenizer, token, typed)
            partial = name.startswith(BYTES)
            tokens.append(TokenLogprob(text, float(logp[token]), likeliest, name if partial else text, token))
            shown = end
        return tuple(tokens)

    def _left(self, x: Tensor, row: TextDraft, n: int, allowed: np.ndarray | None) -> Tensor:
        """What is left of the logits (V,) before token n of a row."""
        if self.drawn is None:
            return x if allowed is None else mask_others(x, allowed)
        prefix, options = self.drawn
        x = x if options.bias is None else x + options.bias
        return crop_logits(options, x[None], [[*prefix, *row.ids[:n]]], allowed, [row.id])[0]


def likeliest_tokens(
    tokenizer: Tokenizer, logp: Tensor, most: int, typed: bytes = b""
) -> tuple[tuple[str, float, int], ...]:
    """The names of the most probable tokens by their ln p (V,), each with its ln p and its id.

    Args:
        typed: the first bytes, which the text contains already.
    """
    top, ids = torch.topk(logp, min(most, len(logp)))
    some = zip(ids.tolist(), top.tolist(), strict=True)
    return tuple((token_name(tokenizer, i, typed), p, i) for i, p in some if p > -torch.inf)


def token_name(tokenizer: Tokenizer, token: int, typed: bytes = b"") -> str:
    """What programs call a token: its text without the letters that are typed, or the name of a control token."""
    if piece := tokenizer.pieces[token].removeprefix(typed):
        return written(piece)
    return next((name for name, i in tokenizer.special_names.items() if i == token), "")  # as <|endoftext|>
