"""`eval lossless`: greedy text with speculation beside greedy text without, token by token, on every prompt.

The trees are of a fixed size, so that speculation never switches itself off. Where the two texts part, the margin
says why: how far the target's two likeliest tokens lay apart there, in logits. A pass over several tokens sums in
another order than a pass over one; on float32 that moves a logit by some 0.0001, on llama.cpp's quantised
activations by some tenths, so that what was nearly a tie can fall the other way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.bench.report import Report
from app.evals.options import Options
from app.evals.prompts import prompts
from core.models import LanguageModel, load_model
from core.ngram import NgramStore
from core.speculative import NgramDrafter, generate
from core.speculative.drafters import Drafter

LENGTH = 32  # tokens after each prompt
TREE = 8  # proposals in each pass
NEVER = frozenset[int]()


@dataclass(frozen=True)
class Compared:
    """One prompt: whether both texts are the same, the margin where they part (else None), accept length τ."""

    same: bool
    margin: float | None
    accept_length: float


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    from core.autocomplete import BASE_STORE

    progress("loading the model")
    model = load_model(options.model, "torch" if options.backend == "auto" else options.backend)  # type: ignore[arg-type]
    store = NgramStore.open(BASE_STORE)
    stores = [store] if store.fingerprint == model.tokenizer.fingerprint else []
    report = Report("eval lossless")
    everything: list[Compared] = []
    for kind, of_kind in prompts(options.text, model.tokenizer, options.repetitions).items():
        found = []
        for number, ids in enumerate(of_kind):
            progress(f"{kind}, prompt {number + 1} of {len(of_kind)}")
            found.append(compared(model, NgramDrafter(stores), ids))
        everything += found
        report.rows.append({"prompts": kind, "backend": model.backend, **_summary(found)})
    report.rows.append({"prompts": "all", "backend": model.backend, **_summary(everything)})
    report.target("prompts with identical text / all", sum(c.same for c in everything) / len(everything), ">= 1.0")
    model.close()
    return report


def compared(model: LanguageModel, drafter: Drafter, ids: list[int], length: int = LENGTH) -> Compared:
    """Both texts from one prompt, which is read once."""
    sequence = model.open()
    options = {"temperature": 0.0, "length": length, "stop_ids": NEVER, "sequence": sequence}
    plain = [t.id for t in generate(model, None, ids, "off", **options)]
    made = generate(model, drafter, ids, "lossless", tree_size=TREE, **options)
    fast = [t.id for t in made]
    margin = None
    if plain != fast:
        at = next(i for i, (a, b) in enumerate(zip(plain, fast, strict=True)) if a != b)
        top = sequence.sync(ids + plain[:at]).topk(2).values
        margin = float(top[0] - top[1])
    sequence.close()
    return Compared(margin is None, margin, made.statistics.accept_length)


def _summary(found: list[Compared]) -> dict[str, float | int]:
    margins = [c.margin for c in found if c.margin is not None]
    return {
        "count": len(found),
        "identical": sum(c.same for c in found),
        "largest margin where they part": max(margins, default=0.0),
        "accept length": sum(c.accept_length for c in found) / len(found),
    }
