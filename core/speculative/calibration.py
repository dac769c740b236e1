"""The constants of LTS, stored with the fingerprint of their model. `training.calibration` measures them.

A file is JSON: {"format": "polydraft-calibration", "version": 1, …}. It is valid for the model whose embeddings and
tokenizer it was made with, and is refused for any other.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
import platformdirs
from pydantic import BeforeValidator, Field, FiniteFloat, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from core.errors import PolydraftError, first_fault, first_line
from core.files import read_json, write_whole
from core.models.base import LanguageModel, Tokenizer
from core.speculative.target import TargetSampling

FORMAT, VERSION = "polydraft-calibration", 1
_ASSETS = Path(__file__).resolve().parents[2] / "assets"
# Of the default model, as it came and with the adapter to prose.
SHIPPED = _ASSETS / "calibration.json", _ASSETS / "prose" / "calibration.json"


class CalibrationError(PolydraftError):
    """A calibration is missing, damaged, or was made for another model or another way of sampling."""


# In a file, null is ∞, because JSON has no infinity.
Limit = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value), Field(gt=0, strict=True)]
Positive = Annotated[FiniteFloat, Field(gt=0, strict=True)]


@dataclass(frozen=True)
class Constants:
    """c'_s (eq. 10), α·κ (eq. 13), τ_δ (eq. 15). A factor of ∞ means that its bound is not used."""

    c_s: Limit
    alpha_kappa: Limit
    tau: Positive

    def bound(self, emb: float, logit: float) -> float:
        """Returns U = min(c'_s·‖W Δe‖², ακ·(Δℓ̃)²) (eq. 14)."""
        # A side whose factor is ∞ is left out, because ∞ · 0 is not a number.
        sides = [f * raw for f, raw in ((self.c_s, emb), (self.alpha_kappa, logit)) if f < math.inf]
        return min(sides, default=math.inf)


@dataclass(frozen=True)
class Bucket:
    """Constants for positions with a normalised entropy below `entropy` and a depth below `depth`, and pairs with
    ‖W Δe‖² below `emb`."""

    entropy: float
    depth: int
    constants: Constants
    emb: Limit = math.inf


@dataclass(frozen=True)
class Calibration:
    """The constants of LTS for one model.

    Attributes:
        fingerprint: of the model; see `fingerprint`.
        model: its name, for messages.
        whitening: (D,) the diagonal of W = diag(1/σ̂).
        overall: the constants for positions outside all buckets.
        buckets: constants for narrower conditions; the first bucket that fits is used.
        delta: δ, the share of positions at which the bound may fail; with `positions`, the share of texts in which it
            may fail anywhere.
        temperature: T of p̃.
        top_k: K, the number of most probable tokens of either distribution that enter the divergence.
        samples, prompts: the number of pairs and of prompts measured.
        budget: the upper limit of τ_δ in bits of divergence; None for the paper's quantile without a limit.
        positions: the number of positions of a text that share δ (corollary ii); None: each has its own.
    """

    fingerprint: str
    model: str
    whitening: Annotated[
        np.ndarray,
        PlainValidator(lambda value: np.array(TypeAdapter(list[FiniteFloat]).validate_python(value), np.float64)),
        PlainSerializer(lambda value: [round(float(w), 5) for w in value]),
    ]
    overall: Constants
    buckets: list[Bucket] = field(default_factory=list)
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.05
    temperature: Positive = 1.0
    top_k: Annotated[int, Field(ge=1)] = 64
    samples: int = 0
    prompts: int = 0
    budget: float | None = None
    positions: Annotated[int, Field(ge=1)] | None = None

    @property
    def each_delta(self) -> float:
        """δ₁ = δ₂ of one position. By the union bound of corollary ii, Pr[JS > τ_δ anywhere] ≤ n·(δ₁ + δ₂) in a text
        of n positions."""
        return self.delta if self.positions is None else self.delta / (2 * self.positions)

    def constants(self, normalised_entropy: float, depth: int, emb: float = 0.0) -> Constants:
        """Returns the constants of the first bucket that fits."""
        for bucket in self.buckets:
            if normalised_entropy < bucket.entropy and depth < bucket.depth and emb < bucket.emb:
                return bucket.constants
        return self.overall

    def check(self, model: LanguageModel, sampling: TargetSampling | None = None) -> Calibration:
        """Returns this calibration. Raises CalibrationError if it was made for another model or another way of sampling
        (assumption iv of the paper's appendix A.1: "matched decoding settings").

        Args:
            sampling: how tokens are sampled; None: at T = 1, without a rule.
        """
        if self.fingerprint != fingerprint(model) or len(self.whitening) != model.dim:
            raise CalibrationError(
                f"This calibration was made for {self.model}, not for {model.name}; run `polydraft calibrate`."
            )
        sampling = sampling or TargetSampling()
        if sampling.crops:
            raise CalibrationError(
                f"ARC given with the rule {sampling.crops}; its constants were measured without a rule, and hold only "
                "there. Choose no rule, or lossless speculation."
            )
        if not math.isclose(sampling.overall_temperature, self.temperature, abs_tol=1e-6):
            here = f"T = {self.temperature:g}"
            raise CalibrationError(
                f"ARC given at T = {sampling.overall_temperature:g}; its constants were measured at {here}, and hold "
                "only there. "
                f"Sample at {here}, or {_how_to(sampling.overall_temperature)}."
            )
        return self

    def save(self, path: Path) -> None:
        """Writes JSON. Raises CalibrationError if the file cannot be written."""
        fields = {"format": FORMAT, "version": VERSION, **json.loads(TypeAdapter(Calibration).dump_json(self))}
        try:
            write_whole(path, json.dumps(fields, indent=1, allow_nan=False).encode())
        except OSError as error:
            raise CalibrationError(f"{path} cannot be written ({error}); choose another place.") from error

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Reads a file. Raises CalibrationError if it is missing, damaged or of another version."""
        try:
            fields = read_json(path)
        except OSError as error:
            raise CalibrationError(
                f"No calibration at {path} ({error.strerror}); run `polydraft calibrate`."
            ) from error
        except (ValueError, RecursionError) as error:
            raise CalibrationError(f"{path} is not JSON ({error}); run `polydraft calibrate` again.") from error
        try:
            if (found := (fields["format"], fields["version"])) != (FORMAT, VERSION):
                raise ValueError(f"format and version {found}")
            return TypeAdapter(cls).validate_python(fields)
        except (KeyError, TypeError, ValueError) as error:
            why = first_fault(error) if isinstance(error, ValidationError) else first_line(error)
            raise CalibrationError(
                f"{path} is not a calibration of version {VERSION} ({why}); run `polydraft calibrate` again."
            ) from error


def user_file(
    model: LanguageModel, temperature: float = 1.0, paper: bool = False, positions: int | None = None
) -> Path:
    """Returns the path of the calibration made on this machine for a temperature: ours, or one by the paper, which has
    a file of its own, because the app does not use it."""
    folder = platformdirs.user_data_path("polydraft", appauthor=False) / "calibrations"
    suffix = "" if temperature == 1 else f"-T{temperature:g}"
    suffix += "-paper" * paper + ("" if positions is None else f"-{positions}")
    return folder / f"{fingerprint(model)[:32]}{suffix}.json"


def for_model(model: LanguageModel, sampling: TargetSampling | None = None) -> Calibration:
    """Returns the calibration of a model for a way of sampling: one made on this machine, or the app's own.

    Args:
        sampling: as for `Calibration.check`.
    Raises: CalibrationError if there is none.
    """
    sampling = sampling or TargetSampling()
    own = user_file(model, sampling.overall_temperature)
    if own.exists():
        return Calibration.load(own).check(model, sampling)
    for path in SHIPPED:
        if path.exists() and (shipped := Calibration.load(path)).fingerprint == fingerprint(model):
            return shipped.check(model, sampling)
    raise CalibrationError(
        f"{model.name} is not calibrated; {_how_to(sampling.overall_temperature, ' --model …')} once."
    )


def _how_to(temperature: float, model: str = "") -> str:
    return f"run `polydraft calibrate{model}{'' if temperature in (0, 1) else f' --temperature {temperature:g}'}`"


def fingerprint(model: LanguageModel) -> str:
    """Returns a hexadecimal SHA-256 of the tokenizer, the sizes, 64 rows of the embeddings, and the adapters in use;
    the same on all backends."""
    digest = hashlib.sha256(f"{model.tokenizer.fingerprint} {model.vocab_size} {model.dim}".encode())
    rows = model.embedded(range(0, model.vocab_size, max(model.vocab_size // 64, 1))[:64])
    # Norms to three digits, because libraries round the last digits differently.
    digest.update(" ".join(f"{float(norm):.3g}" for norm in rows.norm(dim=1)).encode())
    for adapter, strength in model.adapters:
        digest.update(f"{adapter.identity} {strength:g}".encode())
    return digest.hexdigest()


@lru_cache(maxsize=4)
def exact_only(tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the tokens that may not replace another or be replaced: control tokens, and tokens with a digit.

    The next distributions after "4" and after "5" are nearly the same, although the meaning of the text changes. The
    embeddings of control tokens are close together, although their functions differ.
    """
    digits = {i for i, piece in enumerate(tokenizer.pieces) if not piece or any(48 <= byte <= 57 for byte in piece)}
    return frozenset(digits | set(tokenizer.special_ids))
