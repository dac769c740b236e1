"""Computes the first tokens of drafts: after the text, or inside a half-typed word."""

from __future__ import annotations

from collections.abc import Sequence as Ids

import numpy as np
from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.candidates import Candidates, log_total
from core.drafting.forks import Beginning


def find_beginnings(
    logits: list[Tensor],
    prefix: list[int],
    candidates: Candidates,
    pieces: Ids[bytes],
    boundaries: Boundaries,
    kept: Ids[list[int]] = (),
) -> list[Beginning]:
    """First tokens after the prefix, with the tokens of the half-typed word before them, ln P, and ln P without
    personal stores; most probable first. If `boundaries` restricts the first tokens, the probabilities are conditional
    on them.

    Args:
        logits: (V,) after the prefix, then after each of the word's first tokens, as far as they are known.
        kept: token ids of rows whose first tokens are always included.
    """
    if boundaries.starts is None:
        c = candidates.score(logits[0], prefix, [ids[0] for ids in kept])
        first = [([int(t)], float(s), float(w)) for t, s, w in zip(c.ids, c.scores, c.without, strict=True)]
        return sorted((f for f in first if np.isfinite(f[1])), key=lambda f: -f[1])
    path, total = 0.0, 0.0  # ln P of the word's tokens so far; probability of all beginnings
    word = boundaries.word
    by_boundary: list[list[Beginning]] = []
    for n, (after, allowed) in enumerate(zip(logits, boundaries.starts, strict=False)):
        stem = list(word[:n])
        context = prefix + stem
        also = [ids[n] for ids in kept if ids[:n] == stem and len(ids) > n]
        ids, logq, mass = candidates.select_among(after, context, allowed, also)
        onward = word[n : n + 1] if n + 1 < len(logits) else []
        weighed = np.append(logq, [_logprob(after, token, candidates.options.tau) for token in onward])
        tokens = np.append(ids, onward).astype(np.int64)
        scores, without = (s[0] for s in candidates.mix(weighed[None], [context], tokens))
        m = len(ids)
        by_boundary.append(
            [
                ([*stem, int(token)], path + float(s), path + float(w))
                for token, s, w in zip(ids, scores[:m], without[:m], strict=True)
            ]
        )
        total += np.exp(path) * max(mass + float(np.exp(scores[:m]).sum() - np.exp(logq).sum()), 0.0)
        path += float(scores[m]) if onward else 0.0
    if not candidates.options.distinct:  # the paper's drafts share one history, so they begin at one place
        by_boundary = [max(by_boundary, key=lambda boundary: sum(np.exp(s) for _, s, _ in boundary))]
    for allowed, channel in boundaries.slips:
        ids, logq, mass = candidates.select_among(logits[0], prefix, allowed)
        scores, without = (s[0] for s in candidates.mix(logq[None], [prefix], ids))
        by_boundary.append(
            [([int(t)], channel + float(s), channel + float(w)) for t, s, w in zip(ids, scores, without, strict=True)]
        )
        total += np.exp(channel) * mass
    best: dict[bytes, Beginning] = {}
    for ids, s, w in (beginning for boundary in by_boundary for beginning in boundary):
        text = b"".join(pieces[i] for i in ids)  # the same text from two boundaries is one beginning
        if np.isfinite(s) and (text not in best or s > best[text][1]):
            best[text] = ids, s, w
    share = float(np.log(total)) if total > 0 else 0.0
    return sorted(((ids, s - share, w - share) for ids, s, w in best.values()), key=lambda f: -f[1])


def _logprob(logits: Tensor, token: int, tau: float) -> float:
    return float(logits[token]) / tau - log_total(logits.numpy(), tau)
