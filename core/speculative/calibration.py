"""The constants behind LTS: measured once per model (Algorithm 1), kept with the model's fingerprint.

A file is JSON: {"format": "polydraft-calibration", "version": 1, …}. It belongs to the model whose embeddings and
tokenizer it was made with, and is refused for any other.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import platformdirs
import torch
from torch import Tensor

from core.errors import InputError, PolydraftError
from core.models.base import LanguageModel
from core.speculative.acceptance import draw, entropy, jensen_shannon
from core.speculative.target import Choice, softmax

FORMAT, VERSION = "polydraft-calibration", 1
SHIPPED = Path(__file__).resolve().parents[2] / "assets" / "calibration.json"  # of the default model
Z = 1.959964  # of the normal distribution, two-sided 95 %


class CalibrationError(PolydraftError):
    """A calibration file that cannot be used: missing, damaged, or of another model."""


@dataclass(frozen=True)
class Constants:
    """c'_s (eq. 10), α·κ (eq. 13), τ_δ (eq. 15)."""

    c_s: float
    alpha_kappa: float
    tau: float


@dataclass(frozen=True)
class Bucket:
    """Constants for positions with a normalised entropy below `entropy` and a depth below `depth`."""

    entropy: float
    depth: int
    constants: Constants


@dataclass(frozen=True)
class Calibration:
    """What LTS needs of a model.

    Attributes:
        fingerprint: of the model; see `fingerprint`.
        model: its name, for people.
        whitening: (D,) the diagonal of W = diag(1/σ̂).
        overall: the constants where no bucket fits.
        buckets: finer ones; the first that fits counts.
        delta: δ, the share of positions at which the bound may fail.
        temperature: at which p̃ was taken.
        top_k: K, tokens of each side whose union the divergence is taken over.
        samples, prompts: how many went in.
    """

    fingerprint: str
    model: str
    whitening: np.ndarray
    overall: Constants
    buckets: list[Bucket] = field(default_factory=list)
    delta: float = 0.05
    temperature: float = 1.0
    top_k: int = 64
    samples: int = 0
    prompts: int = 0

    def constants(self, normalised_entropy: float, depth: int) -> Constants:
        """Those of the first bucket that fits."""
        for bucket in self.buckets:
            if normalised_entropy < bucket.entropy and depth < bucket.depth:
                return bucket.constants
        return self.overall

    def check(self, model: LanguageModel) -> Calibration:
        """This calibration. Raises CalibrationError if it was made for another model."""
        if self.fingerprint != fingerprint(model):
            raise CalibrationError(
                f"This calibration was made for {self.model}, not for {model.name}; run `polydraft calibrate`."
            )
        return self

    def save(self, path: Path) -> None:
        """Write JSON, to a temporary name first. Raises CalibrationError where that is impossible."""
        said = {
            "format": FORMAT,
            "version": VERSION,
            **asdict(self),
            "whitening": [round(float(w), 5) for w in self.whitening],
        }
        try:
            with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
                json.dump(said, file, indent=1, allow_nan=False)
            Path(file.name).replace(path)
        except OSError as error:
            raise CalibrationError(f"{path} cannot be written ({error}); choose another place.") from error

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Read a file. Raises CalibrationError for one that is missing, damaged or of another version."""
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CalibrationError(
                f"No calibration at {path} ({error.strerror}); run `polydraft calibrate`."
            ) from error
        except ValueError as error:
            raise CalibrationError(f"{path} is no JSON ({error}); run `polydraft calibrate` again.") from error
        try:
            if said["format"] != FORMAT or said["version"] != VERSION:
                raise ValueError(f"format {said['format']!r}, version {said['version']!r}")
            made = cls(
                str(said["fingerprint"]),
                str(said["model"]),
                np.array(said["whitening"], dtype=np.float64),
                Constants(**said["overall"]),
                [Bucket(float(b["entropy"]), int(b["depth"]), Constants(**b["constants"])) for b in said["buckets"]],
                float(said["delta"]),
                float(said["temperature"]),
                int(said["top_k"]),
                int(said["samples"]),
                int(said["prompts"]),
            )
            numbers = [v for c in [made.overall, *(b.constants for b in made.buckets)] for v in asdict(c).values()]
            if made.whitening.ndim != 1 or not np.isfinite(made.whitening).all():
                raise ValueError("whitening is no list of numbers")
            if not all(isinstance(v, int | float) and math.isfinite(v) and v > 0 for v in numbers):
                raise ValueError("constants that are no positive numbers")
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(
                f"{path} is no calibration of version {VERSION} ({error}); run `polydraft calibrate` again."
            ) from error
        return made


def user_file(model: LanguageModel) -> Path:
    """Where a calibration made on this machine lies."""
    folder = platformdirs.user_data_path("polydraft", appauthor=False) / "calibrations"
    return folder / f"{fingerprint(model)[:32]}.json"


def for_model(model: LanguageModel) -> Calibration:
    """The calibration of this model: one made here, or the one that comes with the app. Raises CalibrationError."""
    own = user_file(model)
    if own.exists():
        return Calibration.load(own).check(model)
    if SHIPPED.exists() and (shipped := Calibration.load(SHIPPED)).fingerprint == fingerprint(model):
        return shipped
    raise CalibrationError(f"{model.name} is not calibrated; run `polydraft calibrate --model …` once.")


def fingerprint(model: LanguageModel) -> str:
    """Hexadecimal SHA-256 over the tokenizer, the sizes, and 64 rows of the embeddings: the same on both backends."""
    digest = hashlib.sha256(f"{model.tokenizer.fingerprint} {model.vocab_size} {model.dim}".encode())
    rows = model.embeddings[:: max(model.vocab_size // 64, 1)][:64].float()
    # Norms to three digits: what another library rounds differently in the last place is the same model.
    digest.update(" ".join(f"{float(norm):.3g}" for norm in rows.norm(dim=1)).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Sample:
    """One position (Algorithm 1, lines 3-10): what the bounds see, and the divergence that they bound."""

    js: float
    emb: float
    logit: float
    entropy: float
    depth: int


def whitening(embeddings: Tensor) -> np.ndarray:
    """1/σ̂ per dimension, (D,) (line 1). A dimension in which all tokens agree says nothing: 0."""
    deviation = embeddings.double().std(0).numpy()
    return np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0.0)


def divergence(after_d: Tensor, after_m: Tensor, temperature: float, top_k: int) -> float:
    """JS(q_{j+1}, r_{j+1}) over the union of both top-K sets (lines 7-8), from logits (V,)."""
    k = min(top_k, len(after_d))
    union = torch.cat([after_d.topk(k).indices, after_m.topk(k).indices]).unique()
    t = temperature or 1.0
    return jensen_shannon(softmax((after_d[union] / t).numpy()), softmax((after_m[union] / t).numpy()))


def collect(
    model: LanguageModel,
    prompts: Iterable[Sequence[int]],
    *,
    temperature: float = 1.0,
    per_prompt: int = 6,
    every: int = 2,
    candidates: int = 10,
    top_k: int = 64,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Sample]:
    """Samples (C, j) from the model's own continuations of the prompts (token ids), `per_prompt` of each.

    The candidate t_d is drawn evenly from the likeliest `candidates` tokens but the first. One pass looks at
    both continuations, as a tree of two.
    """
    chance = np.random.default_rng(seed)
    choice = Choice(temperature)
    w = whitening(model.embeddings)
    embeddings = model.embeddings
    found: list[Sample] = []
    for number, prompt in enumerate(prompts):
        sequence = model.open()
        text = list(prompt)
        logits = sequence.sync(text)
        for step in range(per_prompt * every):
            p = choice.probabilities(logits, text)
            token = draw(p, chance)
            if step % every == 0:
                best = np.argsort(-p, kind="stable")[: candidates + 1]
                best = best[p[best] > 0]
                t_m = int(best[0])
                if len(best) > 1:
                    t_d = int(chance.choice(best[1:]))
                    both = sequence.feed_tree([t_m, t_d], [-1, -1])
                    sequence.keep([])
                    difference = (embeddings[t_d] - embeddings[t_m]).double().numpy()
                    found.append(
                        Sample(
                            divergence(both[1], both[0], temperature, top_k),
                            float(np.square(w * difference).sum()),
                            math.log(p[t_m] / max(p[t_d], 1e-9)) ** 2,
                            entropy(p) / math.log(len(p)),
                            step % 6,
                        )
                    )
            if token in model.tokenizer.eos_ids:
                break
            text.append(token)
            logits = sequence.feed([token])
        sequence.close()
        progress(number + 1)
    return found


def fit(samples: Sequence[Sample], delta: float = 0.05, corrected: bool = False) -> Constants:
    """c'_s, ακ and τ_δ (Algorithm 1, lines 11-14).

    Args:
        corrected: take quantiles so high that the Wilson interval of their coverage starts at 1 - δ.
    Raises: InputError for too few samples.
    """
    if len(samples) < 20:
        raise InputError(f"{len(samples)} samples given; at least 20 expected to take quantiles of.")
    js, emb, logit = (np.array([getattr(s, name) for s in samples]) for name in ("js", "emb", "logit"))
    level = 1 - delta
    if corrected:
        level = corrected_level(len(samples), delta)
    c_s = _quantile(js / np.maximum(emb, 1e-12), level)
    alpha_kappa = _quantile(js / np.maximum(logit, 1e-6), level)
    u = np.minimum(c_s * emb, alpha_kappa * logit)
    # U is the smaller of two bounds that each hold at level 1 - δ, so that it holds less often than either. α makes
    # up for it: both grow until U covers as well (the paper leaves α ≥ 1 open).
    alpha = max(1.0, _quantile(js / np.maximum(u, 1e-12), level)) if corrected else 1.0
    return Constants(c_s * alpha, alpha_kappa * alpha, _quantile(u, 1 - delta) * (alpha if corrected else 1.0))


def calibrate(
    model: LanguageModel,
    samples: Sequence[Sample],
    *,
    delta: float = 0.05,
    buckets: int = 0,
    prompts: int = 0,
    **about: float,
) -> Calibration:
    """Constants with the model's fingerprint.

    Args:
        buckets: how many classes of entropy, and of early and late depth each, get constants of their own, with
            the finite-sample correction; 0 for one set of constants, the paper's.
        about: temperature and top_k that the samples were taken with.
    """
    made: list[Bucket] = []
    if buckets:
        edges = np.quantile([s.entropy for s in samples], np.linspace(0, 1, buckets + 1)[1:])
        edges[-1] = 2.0  # beyond every normalised entropy
        low = -1.0
        for high in edges.tolist():
            for first, last in ((0, 3), (3, 1_000)):
                inside = [s for s in samples if low <= s.entropy < high and first <= s.depth < last]
                if len(inside) >= 60:
                    made.append(Bucket(high, last, fit(inside, delta, corrected=True)))
            low = high
    return Calibration(
        fingerprint(model),
        model.name,
        whitening(model.embeddings),
        fit(samples, delta),
        made,
        delta,
        samples=len(samples),
        prompts=prompts,
        **about,  # pyright: ignore[reportArgumentType]
    )


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = hits / n, Z * Z
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def corrected_level(n: int, delta: float) -> float:
    """The least level whose Wilson interval over n samples starts at 1 - δ or above; 1 where n is too small."""
    for hits in range(math.ceil(n * (1 - delta)), n + 1):
        if wilson(hits, n)[0] >= 1 - delta:
            return hits / n
    return 1.0


def _quantile(values: np.ndarray, level: float) -> float:
    """The least of the values that at least a share `level` does not exceed."""
    ordered = np.sort(values)
    return float(ordered[min(max(math.ceil(level * len(ordered) - 1e-9), 1), len(ordered)) - 1])
