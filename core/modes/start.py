"""The ways to make drafts, by name.

    superposed           one row for all drafts, and exact steps
    branching            the k most probable first tokens, each continued greedily in a row of its own
    greedy               the most probable token at each step: one draft
    beam                 beam search with k rows: the k most probable texts
    sampled              k independent samples from the tokens that the rule keeps, a row each
    sampled+superposed   a few tokens sampled, then drafts superposed on each (section 4.5, NS_SPD)

Each is a generator; `core.drafting.driver` runs them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from core.controls import DEFAULT_MODE, DRAWN, SPECULATING, checked_mode
from core.drafting.biased import biased
from core.drafting.boundaries import Boundaries
from core.drafting.drafts import Drafts, Kept, Options
from core.drafting.driver import Drafting, Start, draft_all
from core.drafting.record import Record
from core.drafting.removed_tokens import RemovedTokens
from core.drafting.reuse import KnownLogits, reuse_logits
from core.drafting.stepping_back import Never, without_phrases
from core.drafting.twins import Same, replace_twins
from core.errors import InputError
from core.models.base import LanguageModel, Sequence
from core.modes.beam import beam
from core.modes.sampled import sampled
from core.modes.spliced import spliced
from core.options import LIBRARY
from core.phrases import Phrases
from core.superposed import superposed

if TYPE_CHECKING:
    from torch import Tensor

    from core.modes.speculated import Speculation

_DRAWN = {name: int(value) for name, value in checked_mode("sampled+superposed", {}).items()}


@dataclass(frozen=True)
class Mode:
    """A mode, with the numbers that sampled+superposed needs.

    Attributes:
        name: one of `core.controls.MODES`.
        samples: number of sampled beginnings (n); each gets k drafts.
        sampled_tokens: tokens sampled for each (m), before superposing.
        speculation: how greedy and sampled drafts are made several tokens per pass; None: one.
    """

    name: str = DEFAULT_MODE
    samples: int = _DRAWN["samples"]
    sampled_tokens: int = _DRAWN["sampled_tokens"]
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        checked_mode(self.name, {})
        for name in ("samples", "sampled_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} given; at least 1 expected.")

    @property
    def drawn(self) -> bool:
        """Whether the mode samples tokens."""
        return self.name in DRAWN

    def most(self, k: int) -> int:
        """How many drafts are shown when k are requested."""
        return 1 if self.name == "greedy" else k


def start(
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    mode: Mode,
    boundaries: Boundaries | None = None,
    kept: Ids[Kept] = (),
    verify: int = LIBRARY.verify,
    check_tails: bool = False,
    known: KnownLogits | None = None,
    same: Same | None = None,
    record: Record | None = None,
    never: Never | None = None,
) -> Start:
    """The generator of drafts after `prefix_ids`, which `sequence` holds, after the logits of the prefix are computed.

    Args:
        boundaries: token boundaries at which a half-typed word may be continued. The modes with a row for each draft
            use only the most probable one.
        kept: rows that keep their slots, of superposed drafts.
        verify: tokens of superposed drafts that one more pass checks; see `core.modes.checked`.
        check_tails: whether one more pass cuts superposed drafts where they become implausible, unless it corrects
            them; see `core.modes.checked`.
        known: cached logits of the session's earlier requests, for superposed drafts.
        same: whether two drafts say the same, so that superposed drafts with forks replace one of them.
        record: of how each token is chosen, if the request asks for it.
        never: what no draft contains, and begins with; None for nothing.
    """
    if options.bias is not None:  # the cached logits of the session are the model's own
        bias, banned = options.bias, np.isneginf(options.bias.numpy())  # no store proposes a banned token
        barred = banned if options.barred is None else banned | options.barred
        o = replace(options, bias=None, barred=barred if banned.any() else options.barred)
        begin = start(sequence, prefix_ids, o, mode, boundaries, kept, verify, check_tails, None, same, record, never)
        return lambda logits: biased(begin([x + bias for x in logits]), bias)
    if never:
        removed = RemovedTokens(len(prefix_ids), apart=mode.name == "sampled")
        o = options.without(removed)
        again = start(sequence, prefix_ids, o, mode, boundaries, kept, verify, check_tails, known, same, record)
        pieces = sequence.model.tokenizer.pieces
        return lambda logits: without_phrases(lambda: again(logits), never, removed, pieces, kept)
    o, at = options, boundaries or Boundaries.of(options)
    given = sequence, prefix_ids
    if (how := mode.speculation) is not None and mode.name in SPECULATING:
        from core.modes.speculated import speculated  # imports all of core.speculative

        greedy = mode.name == "greedy"
        return lambda logits: speculated(logits, *given, _greedy(o) if greedy else o, at, how, greedy, record)
    if mode.name == "sampled":
        return lambda logits: sampled(logits, *given, o, at, record)
    if mode.name == "beam":
        return lambda logits: beam(logits, *given, o, at, record)
    if mode.name == "sampled+superposed":
        return lambda logits: spliced(logits, *given, o, at, mode.samples, mode.sampled_tokens, record)
    if mode.name == "greedy":  # one draft: the mixed embedding is that of its own token
        o = _greedy(o)
    elif mode.name == "branching":  # exact to the end
        o = replace(o, distinct=True, exact_steps=max(o.length - 1, 0), forks=0, reset_every=0)

    def once(logits: list[Tensor], more: int = 0, rows: Ids[Kept] = kept) -> Drafting:
        drafting = superposed(logits, *given, replace(o, k=o.k + more) if more else o, at, rows, record)
        return drafting if known is None or o.reset_every else reuse_logits(drafting, known)

    def superposing(logits: list[Tensor]) -> Drafting:
        if same is None or not (o.distinct and o.forks) or o.reset_every:
            return once(logits)
        return replace_twins(once(logits), partial(once, logits), same, kept)

    if not verify and not check_tails:
        return superposing
    from core.modes.checked import checked, tails_checked

    if not verify:
        return lambda logits: tails_checked(superposing(logits), sequence)
    return lambda logits: checked(superposing(logits), *given, o, verify, record)


def draft(
    model: LanguageModel,
    prefix_ids: list[int],
    mode: str | Mode = DEFAULT_MODE,
    *,
    sequence: Sequence | None = None,
    never: Iterable[str] = (),
    **options: Any,
) -> Generator[Drafts]:
    """Drafts after `prefix_ids` in any mode, after every step; the options are those of `superpose`.

    Args:
        never: phrases that no draft contains, as `core.phrases` compiles them.
    """
    o, way = Options(**options), mode if isinstance(mode, Mode) else Mode(mode)
    sequences = None if sequence is None else [sequence]
    pieces = model.tokenizer.pieces
    refused = Never(Phrases.of(never), b"".join(pieces[i] for i in prefix_ids))

    def begin(s: Sequence, ids: list[int]) -> Start:
        return start(s, ids, o, way, never=refused)

    for drafts in draft_all(model, [prefix_ids], begin, sequences):
        yield drafts[0]


def _greedy(o: Options) -> Options:
    return replace(o, k=1, distinct=True, exact_steps=0, forks=0, reset_every=0)
