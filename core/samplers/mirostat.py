"""Mirostat: steers the surprise of the drawn tokens towards a target (Basu et al., arXiv 2007.14966)."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor

from core.controls import default_numbers
from core.errors import InputError
from core.samplers.base import PerRow, Rule, column, in_range, keep_where

REMEMBERED = 64  # contexts with stored state: more than drafts times beams of any request
OF_ZIPF = 100  # the m most probable tokens, from which version 1 estimates the exponent of Zipf's law


_DEFAULT = default_numbers("mirostat")


class Mirostat(Rule):
    """Keeps the tokens whose surprise -log2 p_i is at most μ; after a draw of surprise s, μ ← μ - η·(s - τ).

    Version 1, the paper's algorithm 1, keeps the k most probable tokens, so many as would have the cross-entropy μ if
    the probabilities followed Zipf's law with the exponent ŝ that the first of them have (`likely_by_zipf`).

    Surprise is in bits, s that of the drawn token among the kept ones, and μ starts at 2τ. The rule reads the
    drawn token as the last of the next call's `input_ids`. Its state is stored per context and found again by the
    context, so rows may change places, and several drafts may share one object. The look-up needs the ids on the
    host: on a GPU this rule waits for them.
    """

    title = "mirostat"
    reads_text = True

    def __init__(self, tau: PerRow = _DEFAULT["tau"], eta: PerRow = _DEFAULT["eta"], version: int = 2) -> None:
        """
        Args:
            tau: target surprise τ in bits, 0 or more. One value, or one per row.
            eta: learning rate η, 0 (μ stays) to 1. One value, or one per row.
            version: 1 or 2.
        Raises: InputError.
        """
        if version not in (1, 2):
            raise InputError(f"version {version} given; 1 or 2 expected.")
        self.version = version
        self.tau = in_range("tau", tau, 0, float("inf"))
        self.eta = in_range("eta", eta, 0, 1)
        self._states: OrderedDict[bytes, tuple[float, Tensor]] = OrderedDict()  # context: μ, kept log2 p (V,)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        tau, eta = column(self.tau, x).expand(len(x), 1), column(self.eta, x).expand(len(x), 1)
        contexts = [[]] * len(x) if input_ids is None else input_ids.tolist()
        mu = [self._mu(ids, float(t), float(h)) for ids, t, h in zip(contexts, tau, eta, strict=True)]
        level = torch.tensor(mu, dtype=x.dtype, device=x.device).unsqueeze(1)  # (B, 1) bits
        surprise = x.log_softmax(-1) / -math.log(2)  # (B, V) bits
        keep = (likely_by_zipf(x, level) if self.version == 1 else surprise <= level) | (x == best)
        kept = keep_where(x, keep)
        if input_ids is not None:
            logp = kept.log_softmax(-1) / math.log(2)
            for ids, m, row in zip(contexts, mu, logp, strict=True):
                self._states[_key(ids)] = (m, row)
                self._states.move_to_end(_key(ids))
            while len(self._states) > REMEMBERED:
                self._states.popitem(last=False)
        return kept

    def _mu(self, ids: list[int], tau: float, eta: float) -> float:
        """μ after the last draw; the initial μ for a context that does not continue a stored one."""
        state = self._states.get(_key(ids[:-1])) if len(ids) > 1 else None
        if state is None:
            return 2 * tau
        mu, logp = state
        drawn = -float(logp[ids[-1]])
        return mu - eta * (drawn - tau) if math.isfinite(drawn) else mu


def likely_by_zipf(x: Tensor, mu: Tensor) -> Tensor:
    """Which tokens are among the k most probable (B, V), by the logits (B, V) and μ (B, 1).

    With t_i = ln (i+1)/i and b_i = ln p_i/p_i+1 of the `OF_ZIPF` most probable tokens, ŝ = Σ t_i·b_i / Σ t_i², and with
    ε = ŝ - 1 and N tokens k = (ε·2^μ / (1 - N^-ε))^(1/ŝ), at least 1.
    """
    n = x.shape[-1]
    top = x.double().topk(min(OF_ZIPF, n), -1).values
    t = torch.log1p(1 / torch.arange(1, top.shape[-1], dtype=torch.float64, device=x.device))
    b = top[:, :-1] - top[:, 1:]
    real = b.isfinite()  # neither token is dropped
    t, b = torch.where(real, t, 0.0), torch.where(real, b, 0.0)
    s = ((t * b).sum(-1, keepdim=True) / (t * t).sum(-1, keepdim=True).clamp(min=1e-9)).clamp(min=1e-3)
    epsilon = torch.where((s - 1).abs() < 1e-6, 1e-6, s - 1)  # at 0 the ratio below has a limit
    k = (epsilon * torch.exp2(mu.double()) / (1 - n**-epsilon)) ** (1 / s)
    last = k.clamp(1, n).long() - 1  # the index of the least probable of them
    least = x.sort(-1, descending=True).values.gather(-1, last)
    return x >= least


def _key(ids: list[int]) -> bytes:
    return torch.tensor(ids, dtype=torch.int64).numpy().tobytes()
