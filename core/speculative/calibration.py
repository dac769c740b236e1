"""The constants behind LTS, kept with the fingerprint of their model. `training.calibration` measures them.

A file is JSON: {"format": "polydraft-calibration", "version": 1, …}. It belongs to the model whose embeddings and
tokenizer it was made with, and is refused for any other.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import platformdirs

from core.errors import PolydraftError
from core.models.base import LanguageModel, Tokenizer
from core.speculative.target import TargetSampling

FORMAT, VERSION = "polydraft-calibration", 1
SHIPPED = Path(__file__).resolve().parents[2] / "assets" / "calibration.json"  # of the default model


class CalibrationError(PolydraftError):
    """A calibration file that cannot be used: missing, damaged, or of another model."""


@dataclass(frozen=True)
class Constants:
    """c'_s (eq. 10), α·κ (eq. 13), τ_δ (eq. 15). A factor of ∞ drops its side: that bound cannot be relied on."""

    c_s: float
    alpha_kappa: float
    tau: float


@dataclass(frozen=True)
class Bucket:
    """Constants for positions with a normalised entropy below `entropy` and a depth below `depth`, and pairs with
    ‖W Δe‖² below `emb`."""

    entropy: float
    depth: int
    constants: Constants
    emb: float = math.inf


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
        budget: bits of divergence that τ_δ was held to; None for the paper's quantile alone.
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
    budget: float | None = None

    def constants(self, normalised_entropy: float, depth: int, emb: float = 0.0) -> Constants:
        """Those of the first bucket that fits."""
        for bucket in self.buckets:
            if normalised_entropy < bucket.entropy and depth < bucket.depth and emb < bucket.emb:
                return bucket.constants
        return self.overall

    def check(self, model: LanguageModel, sampling: TargetSampling | None = None) -> Calibration:
        """This calibration. Raises CalibrationError if it was made for another model, or if texts are sampled in
        another way than its texts were (assumption iv of the paper's appendix A.1: "matched decoding settings").

        Args:
            sampling: how tokens are drawn; None: at T = 1, without a rule.
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
        if not math.isclose(sampling.heat, self.temperature, abs_tol=1e-6):
            here = f"T = {self.temperature:g}"
            raise CalibrationError(
                f"ARC given at T = {sampling.heat:g}; its constants were measured at {here}, and hold only there. "
                f"Sample at {here}, or {_how_to(sampling.heat)}."
            )
        return self

    def save(self, path: Path) -> None:
        """Write JSON, to a temporary name first. Raises CalibrationError where that is impossible."""
        said = _without_infinity(
            {
                "format": FORMAT,
                "version": VERSION,
                **asdict(self),
                "whitening": [round(float(w), 5) for w in self.whitening],
            }
        )
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
                _constants(said["overall"]),
                [_bucket(bucket) for bucket in said["buckets"]],
                float(said["delta"]),
                float(said["temperature"]),
                int(said["top_k"]),
                int(said["samples"]),
                int(said["prompts"]),
                None if said["budget"] is None else float(said["budget"]),
            )
            if made.whitening.ndim != 1 or not np.isfinite(made.whitening).all():
                raise ValueError("whitening is no list of numbers")
            if not 0 < made.delta < 1 or not 0 < made.temperature < math.inf or made.top_k < 1:
                raise ValueError("delta, temperature or top_k out of range")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CalibrationError(
                f"{path} is no calibration of version {VERSION} ({error}); run `polydraft calibrate` again."
            ) from error
        return made


def _constants(said: dict) -> Constants:
    """Raises ValueError or KeyError for what are no constants. null is ∞, which τ_δ may not be."""
    read = {name: math.inf if said[name] is None else said[name] for name in ("c_s", "alpha_kappa", "tau")}
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in read.values()):
        raise ValueError("constants that are no positive numbers")
    if read["tau"] == math.inf:
        raise ValueError("a tolerance without end")
    return Constants(**{name: float(v) for name, v in read.items()})


def _bucket(said: dict) -> Bucket:
    edge = math.inf if said["emb"] is None else float(said["emb"])
    if math.isnan(edge):
        raise ValueError("a bucket without an edge")
    return Bucket(float(said["entropy"]), int(said["depth"]), _constants(said["constants"]), edge)


def _without_infinity(said: Any) -> Any:
    """∞ as null, which JSON has."""
    if isinstance(said, dict):
        return {key: _without_infinity(value) for key, value in said.items()}
    if isinstance(said, list):
        return [_without_infinity(value) for value in said]
    return None if isinstance(said, float) and math.isinf(said) else said


def user_file(model: LanguageModel, temperature: float = 1.0) -> Path:
    """The path of a calibration made on this machine, one for each temperature."""
    folder = platformdirs.user_data_path("polydraft", appauthor=False) / "calibrations"
    heat = "" if temperature == 1 else f"-T{temperature:g}"
    return folder / f"{fingerprint(model)[:32]}{heat}.json"


def for_model(model: LanguageModel, sampling: TargetSampling | None = None) -> Calibration:
    """The calibration of this model for this way of sampling: one made here, or the one that comes with the app.

    Args:
        sampling: as for `Calibration.check`.
    Raises: CalibrationError where there is none.
    """
    sampling = sampling or TargetSampling()
    own = user_file(model, sampling.heat)
    if own.exists():
        return Calibration.load(own).check(model, sampling)
    if SHIPPED.exists() and (shipped := Calibration.load(SHIPPED)).fingerprint == fingerprint(model):
        return shipped.check(model, sampling)
    raise CalibrationError(f"{model.name} is not calibrated; {_how_to(sampling.heat, ' --model …')} once.")


def _how_to(heat: float, model: str = "") -> str:
    return f"run `polydraft calibrate{model}{'' if heat in (0, 1) else f' --temperature {heat:g}'}`"


def fingerprint(model: LanguageModel) -> str:
    """Hexadecimal SHA-256 over the tokenizer, the sizes, and 64 rows of the embeddings: the same on both backends."""
    digest = hashlib.sha256(f"{model.tokenizer.fingerprint} {model.vocab_size} {model.dim}".encode())
    rows = model.embeddings[:: max(model.vocab_size // 64, 1)][:64].float()
    # Norms to three digits: what another library rounds differently in the last place is the same model.
    digest.update(" ".join(f"{float(norm):.3g}" for norm in rows.norm(dim=1)).encode())
    return digest.hexdigest()


@lru_cache(maxsize=4)
def exact_only(tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens that may stand for no other, nor another for them: control tokens, and those with a digit in them.

    The next distribution after "4" is that after "5": divergence does not see what is at stake. And control tokens lie
    close together, whatever they mean.
    """
    digits = {i for i, piece in enumerate(tokenizer.pieces) if not piece or any(48 <= byte <= 57 for byte in piece)}
    return frozenset(digits | set(tokenizer.special_ids))
