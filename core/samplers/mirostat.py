"""Mirostat v2: steers the surprise of the drawn tokens towards a target (Basu et al. 2020)."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_where

REMEMBERED = 64  # contexts with stored state: more than drafts times beams of any request


_DEFAULT = default_numbers("mirostat")


class Mirostat(Rule):
    """Keeps the tokens whose surprise -log2 p_i is at most μ; after a draw of surprise s, μ ← μ - η·(s - τ).

    Surprise is in bits, s that of the drawn token among the kept ones, and μ starts at 2τ. The rule reads the
    drawn token as the last of the next call's `input_ids`. Its state is stored per context and found again by the
    context, so rows may change places, and several drafts may share one object. The look-up needs the ids on the
    host: on a GPU this rule waits for them.
    """

    title = "mirostat"
    reads_text = True

    def __init__(self, tau: PerRow = _DEFAULT["tau"], eta: PerRow = _DEFAULT["eta"]) -> None:
        """
        Args:
            tau: target surprise τ in bits, 0 or more. One value, or one per row.
            eta: learning rate η, 0 (μ stays) to 1. One value, or one per row.
        Raises: InputError.
        """
        self.tau = in_range("tau", tau, 0, float("inf"))
        self.eta = in_range("eta", eta, 0, 1)
        self._states: OrderedDict[bytes, tuple[float, Tensor]] = OrderedDict()  # context: μ, kept log2 p (V,)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        tau, eta = column(self.tau, x).expand(len(x), 1), column(self.eta, x).expand(len(x), 1)
        contexts = [[]] * len(x) if input_ids is None else input_ids.tolist()
        mu = [self._mu(ids, float(t), float(h)) for ids, t, h in zip(contexts, tau, eta, strict=True)]
        surprise = x.log_softmax(-1) / -math.log(2)  # (B, V) bits
        keep = (surprise <= torch.tensor(mu, dtype=x.dtype, device=x.device).unsqueeze(1)) | (x == best)
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


def _key(ids: list[int]) -> bytes:
    return torch.tensor(ids, dtype=torch.int64).numpy().tobytes()
