"""Computes the first weights of an EAGLE-3 head in closed form, so that the head is useful before its first training
step.

Gradient descent from random weights spends most of a small budget on a solution that least squares finds at once. Let u
be the output of the target's last layer at position t+1, divided by its root mean square; the head is to predict u at
position t.

    u ≈ F·features(t) + B·x(t+1)        by ridge regression

F becomes `fc`. B, truncated to the available rank, becomes the values and outputs of most attention heads, which attend
only to their own position: if queries and keys are one constant vector, rotated by position, attention is highest at
distance 0. The other attention heads and the feed-forward layer begin with small random weights.

Shapes: N positions, D width of head and target, H heads of width w.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.errors import InputError
from core.speculative.eagle3 import Eagle3Head

OWN = 2 / 3  # share of the attention heads that attend to their own position
SHARP = 6.0  # length of their queries and keys, per rotated pair
PAIRS = 6  # the number of rotated pairs that they use, which are the fastest
RIDGE = 1e-2


@torch.no_grad()
def fit_first_weights(head: Eagle3Head, features: Tensor, last: Tensor, x: Tensor) -> Tensor:
    """Sets the head's first weights from the target's states on texts (B, T).

    Args:
        features: (B, T, 3·D). last: (B, T, D), output of the last layer, before the norm. x: (B, T, D) embeddings.
    Returns: (3·D,) root mean squares of the features, which differ by orders of magnitude, to scale training steps.
    """
    d, config = head.config.hidden_size, head.config
    if config.target_width != d:
        raise InputError(f"A head of width {d} for a target of width {config.target_width}; equal widths expected.")
    layer, attention = head.midlayer, head.midlayer.self_attn
    u = _sized(last[:, 1:]).reshape(-1, d)  # (N, D)
    features = features[:, :-1].reshape(-1, 3 * d)
    tokens = _sized(x[:, 1:]).reshape(-1, d)
    scale = feature_scale(features)
    weights = _ridge(torch.cat((features / scale, tokens), 1), u)  # (4·D, D)
    head.fc.weight.copy_((weights[: 3 * d] / scale[:, None]).T)

    w = config.width
    own = int(OWN * config.key_heads) * w
    left, size, right = torch.linalg.svd(weights[3 * d :].T)
    root = size[:own].sqrt()
    attention.v_proj.weight[:own] = 0
    attention.v_proj.weight[:own, :d] = root[:, None] * right[:own]
    group = config.num_attention_heads // config.key_heads
    attention.o_proj.weight.mul_(0.1)
    for at in range(own // w):  # the heads of a group have equal weights, so each contributes an equal share
        for g in range(group):
            place = (at * group + g) * w
            attention.o_proj.weight[:, place : place + w] = (left[:, :own] * root)[:, at * w : at * w + w] / group
    fused = features @ head.fc.weight.T
    inputs = torch.cat((tokens, _sized(fused)), 1)
    mean = inputs.mean(0)
    constant = mean / mean.square().sum()  # its product with the head's input is 1 on average
    sharp = torch.zeros(w)
    sharp[: min(PAIRS, w // 2)] = SHARP
    for weight, heads in ((attention.q_proj.weight, own // w * group), (attention.k_proj.weight, own // w)):
        for at in range(heads):
            weight[at * w : at * w + w] = sharp[:, None] * constant

    layer.mlp.down_proj.weight.mul_(0.3)
    return scale


def feature_scale(features: Tensor) -> Tensor:
    """Returns the root mean squares (3·D,) of features (…, 3·D) over all positions, always above 0."""
    return features.flatten(0, -2).square().mean(0).sqrt().add_(1e-6)


def _sized(x: Tensor) -> Tensor:
    return F.rms_norm(x.float(), x.shape[-1:])


def _ridge(a: Tensor, y: Tensor) -> Tensor:
    """Returns argmin |y - a·c|² + λ|c|², with λ a share of a's mean square, in float32."""
    products = a.T @ a
    products.diagonal().add_(RIDGE * products.diagonal().mean())
    return torch.linalg.solve(products, a.T @ y)
