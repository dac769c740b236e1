"""`bench speculative`: tokens per second, accept length τ and speed-up over plain decoding, method by method.

All methods continue the same prompts at T = 1, in turns, so that load falls on all alike; what reads the prompt is
not counted. Each method keeps what it learns about its drafter from prompt to prompt, as the app does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.bench.report import Options, Report
from app.evals.prompts import prompts
from core.models import LanguageModel, load_model
from core.ngram import NgramStore
from core.speculative import CalibrationError, Memory, NgramDrafter, SuperposedDrafter, generate
from core.speculative.calibration import for_model
from core.speculative.cost import measure as measure_curve
from core.speculative.drafters import Drafter

LENGTH = 64  # tokens after each prompt
COUNT = 4  # prompts of each kind
NEVER = frozenset[int]()
PLAIN = "plain"


@dataclass
class Method:
    """A way to decode, and what it came to: seconds and tokens by kind of prompt."""

    name: str
    drafter: Drafter | None
    mode: str
    options: dict[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    seen: dict[str, list[Any]] = field(default_factory=dict)  # kind -> Statistics of each prompt


def methods(model: LanguageModel, progress: Callable[[str], None]) -> list[Method]:
    """All of them; those of ARC only where the model is calibrated."""
    from core.autocomplete import BASE_STORE

    store = NgramStore.open(BASE_STORE)
    stores = [store] if store.fingerprint == model.tokenizer.fingerprint else []

    def ngram() -> Drafter:
        return NgramDrafter(stores)

    found = [
        Method(PLAIN, None, "off"),
        Method("n-gram", ngram(), "lossless"),
        Method("superposed tree", SuperposedDrafter(model, 3), "lossless"),
        Method("n-gram + typical", ngram(), "arc", {"tolerance": "typical", "prune": False}),
        Method("n-gram + FSD", ngram(), "arc", {"tolerance": "fsd", "prune": False}),
        Method("n-gram, ARC prune-only", ngram(), "arc", {"tolerance": "none"}),
    ]
    try:
        calibration = for_model(model)
    except CalibrationError as error:
        progress(str(error))
        return found
    return [
        *found,
        Method("n-gram, ARC LTS-only", ngram(), "arc", {"calibration": calibration, "prune": False}),
        Method("n-gram + ARC", ngram(), "arc", {"calibration": calibration}),
    ]


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    progress("loading the model")
    model = load_model(options.model, options.backend)  # type: ignore[arg-type]
    progress("measuring the cost curve")
    curve = measure_curve(model)
    made = methods(model, progress)
    report = Report("speculative")
    by_kind = prompts(options.text, model.tokenizer, options.repetitions or COUNT)
    for kind, of_kind in by_kind.items():
        for number, ids in enumerate(of_kind):
            progress(f"{kind}, prompt {number + 1} of {len(of_kind)}")
            for turn in range(len(made)):
                method = made[(turn + number) % len(made)]
                generation = generate(
                    model,
                    method.drafter,
                    ids,
                    method.mode,  # type: ignore[arg-type]
                    curve=curve,
                    estimates=method.memory,
                    length=LENGTH,
                    stop_ids=NEVER,
                    seed=number,
                    **method.options,
                )
                for _ in generation:
                    pass
                method.seen.setdefault(kind, []).append(generation.statistics)
        report.rows += [row(kind, method, made[0]) for method in made]
    for method in made[1:]:
        slowest = min(_speed_up(method, made[0], kind) for kind in by_kind)
        report.target(f"{method.name}: speed of plain decoding kept, slowest set", slowest, ">= 0.97")
    report.rows += [{"prompts": "cost curve", "tokens": n, "ms": t} for n, t in zip(curve.sizes, curve.ms, strict=True)]
    model.close()
    return report


def row(kind: str, method: Method, plain: Method) -> dict[str, Any]:
    """One line of the paper's Tables 2 and 4."""
    seen = method.seen[kind]
    proposed, pruned = sum(s.proposed for s in seen), sum(s.pruned for s in seen)
    return {
        "prompts": kind,
        "method": method.name,
        "tokens_per_s": sum(s.tokens for s in seen) / sum(s.seconds for s in seen),
        "accept_length": sum(s.tokens for s in seen) / sum(s.cycles for s in seen),
        "speed_up": _speed_up(method, plain, kind),
        "pruned_percent": 100 * pruned / max(proposed + pruned, 1),
        "tolerated_percent": 100 * sum(s.tolerated for s in seen) / sum(s.tokens for s in seen),
        "switched_off": sum(s.notice is not None for s in seen),
    }


def _speed_up(method: Method, plain: Method, kind: str) -> float:
    ours, theirs = method.seen[kind], plain.seen[kind]
    rate = sum(s.tokens for s in ours) / sum(s.seconds for s in ours)
    return rate * sum(s.seconds for s in theirs) / sum(s.tokens for s in theirs)
