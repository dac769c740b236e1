"""Speculation: who may propose, its options on the command line, k sampled drafts made with it there, and how the
page's settings reach the drafts."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakKeyDictionary

import typer

from core.controls import SPECULATING, SPECULATIONS
from core.errors import InputError

if TYPE_CHECKING:
    from app.settings import DraftSettings
    from core.autocomplete import Autocomplete
    from core.speculated import Speculation
    from core.speculative import Drafter

Speculate = Annotated[
    Literal["off", "lossless", "arc"] | None,
    typer.Option(
        help="Draw each draft alone, several tokens per pass: [bold]off[/] one token per pass, [bold]lossless[/] with "
        "the same distribution, [bold]arc[/] accepting near-equivalents too.",
        metavar="NAME",
    ),
]


@dataclass(frozen=True)
class Proposer:
    """A drafter that can be chosen: what it is, in words, how it is made, and why a model cannot have it, or ""."""

    says: str
    make: Callable[[Autocomplete], Drafter]
    missing: Callable[[Autocomplete], str] = lambda _: ""


def _ngram(autocomplete: Autocomplete) -> Drafter:
    from core.speculative import NgramDrafter

    return NgramDrafter([] if autocomplete.ngrams is None else [autocomplete.ngrams])


def _superposed(autocomplete: Autocomplete) -> Drafter:
    from core.speculative import SuperposedDrafter

    return SuperposedDrafter(autocomplete.model, 3, ngrams=autocomplete.ngrams)


def _eagle3(autocomplete: Autocomplete, head: Path | None = None) -> Drafter:
    from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
    from core.speculative.eagle3 import Eagle3Head

    return Eagle3Drafter(Eagle3Head.load(head or DEFAULT_HEAD), autocomplete.model)


def _no_eagle3(autocomplete: Autocomplete) -> str:
    model = autocomplete.model
    if model.backend != "torch":
        return f"EAGLE-3 reads hidden states, which {model.backend} does not hand over; start with --backend torch."
    from core.speculative.drafters.eagle3 import DEFAULT_HEAD
    from core.speculative.eagle3 import Eagle3Head, HeadError

    try:
        Eagle3Head.load(DEFAULT_HEAD).check(model.vocab_size, model.dim)
    except HeadError as error:
        return str(error)
    return ""


# The command line's choices and the page's.
DRAFTERS: dict[str, Proposer] = {
    "ngram": Proposer("Words that followed before, in the text or the n-gram store; costs no pass.", _ngram),
    "superposed": Proposer("Three superposed drafts; costs a pass per level.", _superposed),
    "eagle3": Proposer("A small head that was trained on the model's own hidden states.", _eagle3, _no_eagle3),
}
if TYPE_CHECKING:
    _Named = str
else:
    _Named = Literal[tuple(DRAFTERS)]
DrafterName = Annotated[
    _Named,
    typer.Option(
        help="What proposes tokens: n-grams of the text and the store, superposed drafts, or an EAGLE-3 head (with "
        "--backend torch).",
        metavar="NAME",
    ),
]
HeadFolder = Annotated[
    Path | None,
    typer.Option(help="EAGLE-3: the folder of the head; by default the one for the default model.", metavar="FOLDER"),
]
TreeSize = Annotated[
    int | None,
    typer.Option(min=0, help="Proposals per pass; by default as many as pay off on this machine.", metavar="N"),
]
Theta = Annotated[float, typer.Option(max=1, help="ARC: θ, the lowest tolerance score that is accepted.", metavar="N")]
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
    head: Path | None = None


def _proposing(autocomplete: Autocomplete, asked: Asked) -> Drafter | None:
    if asked.mode == "off":
        return None
    if asked.drafter == "eagle3" and asked.head is not None:
        return _eagle3(autocomplete, asked.head)
    return DRAFTERS[asked.drafter].make(autocomplete)


def drafts(
    autocomplete: Autocomplete, text: str, asked: Asked, k: int, length: int, rule: Any, seed: int
) -> dict[str, Any]:
    """k drafts, each drawn alone after `text`, as `complete --json` prints them. `rule` has the temperature in it.

    Raises: InputError for a text of nothing; CalibrationError where ARC lacks one.
    """
    from core.speculative import Memory, generate
    from core.speculative.calibration import for_model

    model = autocomplete.model
    if length < 1 or k < 1:
        raise InputError(f"{k} drafts of {length} tokens asked for; at least one of each expected.")
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
    drafter, memory, sequence = (
        _proposing(autocomplete, asked),
        Memory(),
        model.open(),
    )
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


# ---------------------------------------------------------------- the page

LEARNT = 16  # settings whose acceptance is remembered


class _Learnt:
    """What a model's drafters have learnt: kept beside the model for as long as that is there."""

    def __init__(self) -> None:
        self.drafters: dict[str, Drafter] = {}
        self.speculators: OrderedDict[str, Any] = OrderedDict()
        self.curve: Any = None
        self.measuring: Generator[None, None, Any] | None = None
        self.calibration: Any = None


_learnt: WeakKeyDictionary[Any, _Learnt] = WeakKeyDictionary()


def chosen_by(autocomplete: Autocomplete, settings: DraftSettings) -> Speculation | None:
    """How the drafts are speculated on. None while it is not known yet what passes cost: the first time on a machine,
    until `chore` is done.

    Raises: CalibrationError where ARC lacks one; InputError for a drafter that this model cannot have.
    """
    from core.speculated import Speculation, Speculator
    from core.speculative.calibration import for_model
    from core.speculative.cost import known_curve, measuring

    wanted, model = settings.sampling.speculation, autocomplete.model
    learnt = _learnt.setdefault(autocomplete, _Learnt())
    if wanted.mode == "arc" and learnt.calibration is None:
        learnt.calibration = for_model(model)
    if learnt.curve is None:
        learnt.curve = known_curve(model)
    if learnt.curve is None:
        learnt.measuring = learnt.measuring or measuring(model)
        return None
    if wanted.drafter not in learnt.drafters:
        proposer = DRAFTERS[wanted.drafter]
        if missing := proposer.missing(autocomplete):
            raise InputError(missing)
        learnt.drafters[wanted.drafter] = proposer.make(autocomplete)
    # Other settings are accepted another share of, so what was learnt is theirs, and so is having been switched off.
    key = settings.model_dump_json(include={"k", "temperature", "tau", "sampling"})
    if key not in learnt.speculators:
        learnt.speculators[key] = Speculator(learnt.drafters[wanted.drafter], learnt.curve)
        if len(learnt.speculators) > LEARNT:
            learnt.speculators.popitem(last=False)
    learnt.speculators.move_to_end(key)
    values = dict(wanted.values)
    return Speculation(
        learnt.speculators[key],
        wanted.mode,  # pyright: ignore[reportArgumentType]
        tree_size=values.pop("tree_size", 0) or "auto",
        calibration=learnt.calibration if wanted.mode == "arc" else None,
        temperature=settings.temperature,
        **values,
    )


def chore(autocomplete: Autocomplete) -> Iterator[None]:
    """What is left to be measured before there can be speculation, in steps of one pass of the model; nothing once it
    is. For the thread that owns the model."""
    from core.speculative.cost import remember_curve

    learnt = _learnt.get(autocomplete)
    if learnt is None or learnt.measuring is None:
        return
    try:
        learnt.curve = yield from learnt.measuring
    finally:
        learnt.measuring = None
    remember_curve(autocomplete.model, learnt.curve)


def catalogue(autocomplete: Autocomplete | None) -> dict[str, Any]:
    """What the page offers: ways with their controls, drafters, and why ARC cannot be had, where it cannot."""
    missing = ""
    if autocomplete is not None:  # while it is being loaded, the same modules are being imported in that thread
        from core.speculative.calibration import CalibrationError, for_model

        try:
            for_model(autocomplete.model)
        except CalibrationError as error:
            missing = str(error)
    return {
        "modes": list(SPECULATING),
        "ways": [
            {"name": name, "says": says, "controls": [asdict(c) | {"whole": isinstance(c.step, int)} for c in controls]}
            for name, (says, controls) in SPECULATIONS.items()
        ],
        "drafters": [
            {
                "name": name,
                "says": drafter.says,
                "missing": "" if autocomplete is None else drafter.missing(autocomplete),
            }
            for name, drafter in DRAFTERS.items()
        ],
        "arc_missing": missing,
    }
