"""An `Autocomplete` whose next-token distributions are computed from the text, for real rules: tests can compute the
panel's figures a second time, and no model is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from core.ask import Ask
from core.drafting.drafts import Figures
from core.models.embeddings import Embeddings
from core.present import Origin, TextDraft
from core.samplers import Geometry
from core.samplers.catalog import sampler
from core.samplers.geometry import METRICS
from tests.fake_autocomplete import FakeAutocomplete, FakeCompletion, FakeSession

WORDS = ("river", "market", "lantern", "house", "garden", "letter", "window", "story", "winter", "music")
PIECES = [f" {word}{n or ''}" for n in range(60) for word in WORDS]  # (V,)


class Tokenizer:
    fingerprint, ends = "words", frozenset[int]()

    def decode(self, ids: list[int]) -> str:
        return "".join(PIECES[i] for i in ids)


def logits_after(text: str) -> Tensor:
    """(V,), the same for the same text."""
    return torch.randn(len(PIECES), generator=torch.Generator().manual_seed(crc32(text.encode()))) * 3


class SamplingAutocomplete(FakeAutocomplete):
    def __init__(self) -> None:
        super().__init__()
        embeddings = torch.randn(len(PIECES), 16, generator=torch.Generator().manual_seed(5))
        table = Embeddings.of_tensor(embeddings)
        vars(self.model).update(tokenizer=Tokenizer(), vocab_size=len(PIECES), dim=16, _table=table)
        self.geometries = {metric: Geometry(embeddings, metric) for metric in METRICS}

    def sampler(
        self,
        rule: str,
        values: Mapping[str, Any] | None = None,
        temperature: float = 1.0,
        select_at: Any = "temperature",
        breakers: Any = None,
        more: Any = None,
    ) -> Any:
        return sampler(rule, values, temperature, self.geometries, select_at=select_at)

    def open(self) -> SamplingSession:
        self.opened += 1
        self.sessions.append(SamplingSession(self))
        return self.sessions[-1]  # pyright: ignore[reportReturnType]


class SamplingSession(FakeSession):
    def complete(self, ask: Ask) -> SamplingCompletion:
        made = SamplingCompletion(ask, known=any(c.before == ask.before for c in self.completions))
        self.completions.append(made)
        return made


class SamplingCompletion(FakeCompletion):
    """The k most probable tokens that the rule keeps, each followed by a few words; earlier requests are cached."""

    explained = None

    @property
    def next_logits(self) -> Tensor | None:
        return logits_after(self.before) if self.step else None

    whole_logits = next_logits

    def advance(self, logits: list[str]) -> SamplingCompletion:
        super().advance(logits)
        rule, mode = self.ask.rule, self.ask.mode
        row = logits_after(self.before)
        if rule is not None:
            row = rule(torch.zeros(1, 1, dtype=torch.int64), row[None])[0]
        p = row.double().softmax(0)
        order = p
        if mode.name == "sampled":
            chance = torch.Generator().manual_seed(self.ask.seed)
            order = p / -torch.rand(len(p), generator=chance, dtype=torch.float64).log()
        best = [int(i) for i in torch.topk(order, self.k).indices if p[i] > 0]
        self.drafts = [
            TextDraft(n, PIECES[i] + " and on" * (self.step - 1), float(p[i]), float(p[i]), self.done)
            for n, i in enumerate(best)
        ]
        if mode.speculation is not None:
            self.speculate(mode.speculation)
        return self

    def speculate(self, how: Any) -> None:
        """Made-up ways for " and" and " on" to have come."""
        ways = ["accepted", "tolerated" if how.options.mode == "arc" else "accepted", "corrected", "bonus"]
        self.drafts = [replace(draft, how=tuple(_ways(draft.text, ways))) for draft in self.drafts]
        notice = "Speculation was switched off, for a test." if how.options.tree_size == 31 else None
        self.figures = Figures(2.5, 1.75, notice)


def _ways(text: str, ways: list[str]) -> Iterator[Origin]:
    words = list(re.finditer(r" \w+", text))
    yield (*words[0].span(), "plain", None)
    for i, word in enumerate(words[1:]):
        how = ways[i % len(ways)]
        yield (*word.span(), how, 0.625 if how == "tolerated" else None)


STEPS = 4  # of every short draft


class ShortDrafts(SamplingAutocomplete):
    """Whatever length is asked for, drafts end after a few steps: the page draws each, which takes processor time."""

    def open(self) -> SamplingSession:
        session = super().open()
        whole = session.complete

        def complete(ask: Ask) -> SamplingCompletion:
            return whole(replace(ask, length=min(ask.length, STEPS)))

        session.complete = complete
        return session
