"""Speculation on the command line: its options, and k sampled drafts made with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from core.errors import InputError

if TYPE_CHECKING:
    from core.autocomplete import Autocomplete

Speculate = Annotated[
    Literal["off", "lossless", "arc"] | None,
    typer.Option(
        help="Draw each draft alone, several tokens per pass: [bold]off[/] one token per pass, [bold]lossless[/] with "
        "the same distribution, [bold]arc[/] letting near-equivalents stand.",
        metavar="NAME",
    ),
]
DrafterName = Annotated[
    Literal["ngram", "superposed"],
    typer.Option(help="What proposes tokens: n-grams of the text and the store, or superposed drafts.", metavar="NAME"),
]
TreeSize = Annotated[
    int | None,
    typer.Option(min=0, help="Proposals per pass; by default what pays on this machine.", metavar="N"),
]
Theta = Annotated[float, typer.Option(max=1, help="ARC: θ, the least tolerance score that passes.", metavar="N")]
PruneLambda = Annotated[
    float, typer.Option(min=0, help="ARC: λ, how much uncertainty and depth count against a proposal.", metavar="N")
]
PruneEpsilon = Annotated[
    float, typer.Option(min=0, max=0.99, help="ARC: ε, the share of each depth that may be pruned.", metavar="N")
]


@dataclass(frozen=True)
class Asked:
    """What the options said; see `core.speculative.generate`."""

    mode: Any
    drafter: str = "ngram"
    tree_size: int | None = None
    theta: float = 0.3
    lam: float = 1.0
    epsilon: float = 0.05


def drafts(
    autocomplete: Autocomplete, text: str, asked: Asked, k: int, length: int, rule: Any, seed: int
) -> dict[str, Any]:
    """k drafts, each drawn alone after `text`, as `complete --json` prints them. `rule` has the temperature in it.

    Raises: InputError for a text of nothing; CalibrationError where ARC lacks one.
    """
    from core.speculative import Memory, NgramDrafter, SuperposedDrafter, generate
    from core.speculative.calibration import for_model

    model = autocomplete.model
    if length < 1 or k < 1:
        raise InputError(f"{k} drafts of {length} tokens asked for; at least one of each expected.")
    make: dict[str, Callable[[], Any]] = {
        "ngram": lambda: NgramDrafter([] if autocomplete.ngrams is None else [autocomplete.ngrams]),
        "superposed": lambda: SuperposedDrafter(model, 3, ngrams=autocomplete.ngrams),
    }
    options: dict[str, Any] = {"rule": rule, "length": length}
    if asked.mode == "arc":
        options |= {
            "calibration": for_model(model),
            "theta": asked.theta,
            "lam": asked.lam,
            "epsilon": asked.epsilon,
        }
    if asked.tree_size is not None:
        options["tree_size"] = asked.tree_size
    ids = model.tokenizer.start_ids + model.tokenizer.encode(text) or [model.tokenizer.document_start]
    began = time.perf_counter()
    drafter, memory, sequence = None if asked.mode == "off" else make[asked.drafter](), Memory(), model.open()
    found, notice, tokens, cycles = [], None, 0, 0
    for number in range(k):
        sequence.resume(ids)
        made = generate(
            model, drafter, ids, asked.mode, sequence=sequence, estimates=memory, seed=seed + number, **options
        )
        drawn = list(made)
        notice = notice or made.statistics.notice
        tokens, cycles = tokens + made.statistics.tokens, cycles + made.statistics.cycles
        found.append(
            {
                "text": model.tokenizer.decode([t.id for t in drawn]),
                "tokens": [
                    {
                        "text": model.tokenizer.decode([t.id]),
                        "how": t.how,
                        "lts": None if t.lts is None else round(t.lts, 3),
                        "logprob": round(t.logprob, 3),
                    }
                    for t in drawn
                ],
            }
        )
    sequence.close()
    if drafter is not None:
        drafter.close()
    return {
        "text": text,
        "drafts": found,
        "model": model.name,
        "backend": model.backend,
        "speculation": asked.mode,
        "accept_length": round(tokens / cycles, 2) if cycles else None,
        "notice": notice,
        "ms": round((time.perf_counter() - began) * 1000, 1),
    }


def shown(made: dict[str, Any], visible: Callable[[str], str]) -> str:
    """The drafts for a person, and what speculation came to."""
    lines = [f"{number}  {visible(draft['text'])}" for number, draft in enumerate(made["drafts"], start=1)]
    lines.append(f"   {made['accept_length'] or 1} tokens a pass, {made['ms']:.0f} ms")
    return "\n".join(lines + ([made["notice"]] if made["notice"] else []))
