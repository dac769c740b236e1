"""ln p of each token of a given text, by the model alone: for programs that measure a model.

The text is read as it is, from its first token on: no word of it is half-typed, and nothing is put before it but the
token with which the model's texts begin. Without such a token, nothing says how likely the first token is.
"""

from __future__ import annotations

import codecs
import math

import torch
from torch import Tensor

from core.ask import Ask
from core.completion import Completion
from core.drafting.driver import Steps
from core.errors import InputError
from core.kept import KeptText
from core.logprobs import likeliest_tokens, token_name
from core.models.base import Row, Tokenizer
from core.present import TextDraft, TokenLogprob

PART = 32  # tokens of a pass: their logits are large


def scored(text: KeptText, ask: Ask) -> Steps[Completion]:
    """Yields the passes. The last state has one draft: the text, and in `model_logprobs` its tokens, with the likeliest
    one after them at the end.

    Raises: InputError for an empty text, for one that the model cannot hold, and for ids outside the vocabulary.
    """
    model, sequence = text.equipped.model, text.sequence
    tokenizer = model.tokenizer
    ids, start = list(ask.ids) or tokenizer.encode(ask.before), list(tokenizer.start_ids)
    if not ids:
        raise InputError("An empty text given; at least one token expected.")
    if (most := model.context_length - len(start)) < len(ids):
        raise InputError(f"A text of {len(ids):,} tokens given; at most {most:,} can be scored.")
    if max(ids) >= len(tokenizer.pieces):
        raise InputError(f"The token {max(ids)} given; the model's tokens go up to {len(tokenizer.pieces) - 1}.")
    sequence.rewind(0)
    scores = _Scores(tokenizer, ask.likeliest or 0)
    whole = [*start, *ids]
    if not start:
        scores.add(ids[0], None)
    logits = torch.empty(0)
    for at in range(0, len(whole), PART):
        (logits,) = yield [Row(sequence, whole[at : at + PART], every=True)], Completion([])
        for n, x in enumerate(logits, at + 1):
            if len(start) <= n < len(whole):
                scores.add(whole[n], x)
    scores.add(int(logits[-1].argmax()), logits[-1])
    total = math.fsum(token.logprob or 0.0 for token in scores.tokens[:-1])
    shown = "".join(token.text for token in scores.tokens)
    row = TextDraft(0, shown, math.exp(total), math.exp(total), True, model_logprobs=tuple(scores.tokens))
    yield [], Completion([row], settled=True, done=True, fed=len(whole))


class _Scores:
    """The tokens of a text, one after the other."""

    def __init__(self, tokenizer: Tokenizer, likeliest: int) -> None:
        self.tokens: list[TokenLogprob] = []
        self._tokenizer, self._likeliest = tokenizer, likeliest
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int, logits: Tensor | None) -> None:
        """Adds a token, with the logits (V,) before it; None if there are none."""
        tokenizer = self._tokenizer
        text, name = self._decoder.decode(tokenizer.pieces[token]), token_name(tokenizer, token)
        if logits is None:
            self.tokens.append(TokenLogprob(text, None, (), name, token))
            return
        logp = torch.log_softmax(logits.float(), 0)
        likeliest = likeliest_tokens(tokenizer, logp, self._likeliest)
        self.tokens.append(TokenLogprob(text, float(logp[token]), likeliest, name, token))
