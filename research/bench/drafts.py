"""`bench drafts`: the time of k drafts of 10 tokens, after a prefix of 32 tokens whose logits are cached.

All runs use the same model interface and are interleaved round by round, each round with another prefix:
superposed drafts that branch at their first token, as in the paper, with r exact steps; superposed drafts with the
app's default forks and exact steps; one greedy draft; k sampled sequences in one batch; k sampled sequences in a row.

Besides, the time in which three drafts of the page become rows, at each step, by their length; and the time that a list
of phrases which no draft may contain adds to a step, and to a request.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Annotated, NamedTuple

import torch
import typer
from pydantic import TypeAdapter
from torch import Tensor

from app.wire import bounds
from core.ask import Ask
from core.autocomplete import load_autocomplete
from core.drafting.drafts import Draft, Drafts, Options
from core.drafting.driver import Driven
from core.drafting.stepping_back import Never
from core.errors import BackendUnavailable
from core.models import LanguageModel, Row, Sequence, Tokenizer
from core.modes.start import Mode, start
from core.ngram import NgramStore
from core.options import LIBRARY, Backend
from core.phrases import LONGEST, MOST, Phrases, compiled
from core.present import Presentation, present
from core.superposed import superpose
from research import texts as text
from research.options import MixedOptions, TextOptions
from research.report import Report, ReportRow, Timings, interleaved, turned

LENGTH = 10
PREFIX = 32
KS = (1, 3, 8)
LONG = (10, 128, 256)  # tokens of drafts that become rows
WITH_PHRASES = (3, 9)  # drafts without the phrases
BACKENDS: tuple[Backend, ...] = ("llama.cpp", "torch")
ROUNDS = {"llama.cpp": 20, "torch": 8}
GREEDY = "one greedy draft"
NEVER = frozenset[int]()  # no token ends a draft, so all have the same length
SHORTLIST = 40  # sampling considers this many tokens: sorting the whole vocabulary would slow the peer down

# The targets on llama.cpp: name, one time, the other, bound of their ratio
TARGETS = [
    ("superposed, r=0, k=3 / one greedy draft", "superposed r=0 k=3", GREEDY, "<= 1.05"),
    ("superposed, r=0, k=8 / one greedy draft", "superposed r=0 k=8", GREEDY, "<= 1.10"),
    (
        "sampled in one batch / superposed, r=0, k=3",
        "sampled in one batch k=3",
        "superposed r=0 k=3",
        ">= 1.55",
    ),
    (
        "sampled in one batch / superposed, r=0, k=8",
        "sampled in one batch k=8",
        "superposed r=0 k=8",
        ">= 3.1",
    ),
    ("superposed, r=1, k=3 / one greedy draft", "superposed r=1 k=3", GREEDY, "<= 1.20"),
    ("superposed, r=1, k=8 / one greedy draft", "superposed r=1 k=8", GREEDY, "<= 1.45"),
]


@dataclass(frozen=True)
class DraftsBenchOptions(MixedOptions, TextOptions):
    repetitions: Annotated[int | None, typer.Option(min=1, help="Rounds; by default 20, and 8 on torch.")] = None


def measure(options: DraftsBenchOptions, progress: Callable[[str], None]) -> Report:
    report = Report("drafts")
    for backend in BACKENDS if options.backend == "auto" else (options.backend,):
        progress(f"loading the model on {backend}")
        try:
            autocomplete = load_autocomplete(options.model, backend, options.store)
        except BackendUnavailable as error:
            report.rows.append({"backend": backend, "method": "not measured", "note": str(error)})
            continue
        model = autocomplete.model
        prefixes = text.prefixes(model.tokenizer, text.load(options.text), 64, PREFIX)
        rounds = options.repetitions or ROUNDS.get(backend, 8)
        timings = _measure(model, autocomplete.ngrams, prefixes, rounds, backend, progress)
        report.rows += rows(timings, backend)
        if backend == "llama.cpp":
            for name, method, peer, target in TARGETS:
                report.target(name, timings.ratio(method, peer), target)
        if backend == options.backend or backend == BACKENDS[-1]:
            report.rows += presenting(model.tokenizer, text.load(options.text))
            report.target(f"three drafts of {LONG[-1]} tokens, ms a step", float(report.rows[-1]["ms"] or 0), "<= 0.2")
            listed = phrases_of(text.load(options.text))
            alone = phrases_alone(model, prefixes, listed, rounds)
            report.rows += [*alone, *phrases_of_a_request(listed, rounds)]
            for row in alone:
                if "in no draft" in str(row["method"]):
                    report.target(f"{row['method']}, ms", float(row["ms"] or 0), "<= 0.2")
        model.close()
    return report


def presenting(tokenizer: Tokenizer, files: list[list[str]]) -> list[ReportRow]:
    """The ms of a step in which three drafts of a length gain a token, which are texts of these files."""
    ids = tokenizer.encode(" ".join(document for file in files for document in file).replace("\n", " "))
    k, most = 3, LONG[-1]
    drafts = [ids[at : at + most] for at in range(0, k * most, most)]
    how, taken = Presentation(tokenizer, Ask(k=k, length=most, merge_alike=True)), dict[int, float]()
    for n in range(1, most + 1):
        step = Drafts([_grown(row[:n], slot) for slot, row in enumerate(drafts)], n)
        began = time.perf_counter()
        present(step, how)
        taken[n] = time.perf_counter() - began
    return [
        {
            "method": f"three drafts of {n} tokens to rows, a step",
            "ms": 1000 * median(taken[m] for m in range(n - 8, n)),
        }
        for n in LONG
    ]


def phrases_of(files: list[list[str]]) -> list[str]:
    """As many phrases as a list may have, of two to four words of these files: of frequent ones most."""
    words = " ".join(document for file in files for document in file).replace("*", "").split()[: 8 * MOST]
    chance = random.Random(0)
    return [" ".join(chance.choices(words, k=chance.randint(2, 4)))[:LONGEST] for _ in range(MOST)]


def phrases_alone(model: LanguageModel, prefixes: list[list[int]], listed: list[str], rounds: int) -> list[ReportRow]:
    """The ms that phrases add to a step, apart from the passes. Drafts contain beginnings of the first list, and no
    phrase of it. Those with a phrase of the second step back, so they are other drafts, and have more steps."""
    lists = {"none": None, "in no draft": _without_ends(listed), "in drafts": Phrases.of(listed)}
    found: list[ReportRow] = []
    for k in WITH_PHRASES:
        runs: dict[str, list[_Apart]] = {name: [] for name in lists}
        for number in range(rounds):
            prefix = prefixes[number % len(prefixes)]
            before = b"".join(model.tokenizer.pieces[i] for i in prefix)
            for name in turned([*lists], number):
                phrases = lists[name]
                never = None if phrases is None else Never(phrases, before)
                runs[name].append(_apart(model, prefix, k, never))
        for name in [*lists][1:]:
            more = [a.seconds / a.steps - b.seconds / b.steps for a, b in zip(runs[name], runs["none"], strict=True)]
            steps = [a.steps - b.steps for a, b in zip(runs[name], runs["none"], strict=True)]
            found.append(
                {
                    "method": f"{MOST:,} phrases {name}, k={k}, more a step",
                    "ms": 1000 * median(more),
                    "more_steps": sum(steps) / rounds,
                    "rounds": rounds,
                }
            )
    return found


def _without_ends(listed: list[str]) -> Phrases:
    """The phrases with a last word that no text has."""
    return Phrases.of(f"{phrase.rsplit(' ', 1)[0][: LONGEST // 2]} word{n}" for n, phrase in enumerate(listed))


def phrases_of_a_request(listed: list[str], rounds: int) -> list[ReportRow]:
    """The ms in which a request with phrases is read, and those in which a list is compiled that no earlier request
    had."""
    body, adapter = json.dumps(listed), TypeAdapter(bounds.Phrases)
    timings = interleaved(
        {
            "read at each request": lambda: compiled(tuple(adapter.validate_python(json.loads(body)))),
            "compiled once": lambda: Phrases.of(listed),
        },
        rounds,
        lambda _: None,
    )
    return [
        {"method": f"{MOST:,} phrases, {name}", "ms": 1000 * timings.median(name), "rounds": rounds}
        for name in timings.seconds
    ]


class _Apart(NamedTuple):
    """The seconds that the steps of a request take without their passes, and the number of its steps."""

    seconds: float
    steps: int


def _apart(model: LanguageModel, prefix: list[int], k: int, never: Never | None) -> _Apart:
    """A request for the page's drafts, without its passes."""
    sequence, options = model.open(), Options(k=k, length=LENGTH, stop_ids=NEVER)
    logits = [sequence.sync(prefix)]
    began = time.perf_counter()
    drafting = Driven(start(sequence, prefix, options, Mode(), never=never)(logits))
    taken, steps = time.perf_counter() - began, 1
    while not drafting.done:
        logits = model.forward(drafting.rows())
        began = time.perf_counter()
        drafting.advance(logits)
        taken, steps = taken + time.perf_counter() - began, steps + 1
    sequence.close()
    return _Apart(taken, steps)


def _grown(ids: list[int], slot: int) -> Draft:
    n = len(ids)
    return Draft(ids, [-0.1 * (i + 1) for i in range(n)], slot, own=n, exact=n, personal=[False] * n)


def rows(timings: Timings, backend: str) -> list[ReportRow]:
    return [
        {
            "backend": backend,
            "method": name,
            "ms": timings.median(name) * 1000,
            "of_one_greedy_draft": timings.ratio(name, GREEDY),
            "rounds": len(seconds),
        }
        for name, seconds in timings.seconds.items()
    ]


def _measure(
    model: LanguageModel,
    ngrams: NgramStore | None,
    prefixes: list[list[int]],
    rounds: int,
    backend: str,
    progress: Callable[[str], None],
) -> Timings:
    rng = torch.Generator().manual_seed(0)
    sequence = model.open()
    prefix = prefixes[0]

    def ready(number: int) -> None:
        """Feeds the prefix and computes the logits after it, for the next run."""
        nonlocal prefix
        if number >= 0:
            progress(f"{backend}, round {number + 1} of {rounds}")
        prefix = prefixes[number % len(prefixes)]
        sequence.sync(prefix)

    def superposed(k: int, forks: int, exact_steps: int, table: NgramStore | None) -> None:
        for _ in superpose(
            model,
            prefix,
            k=k,
            length=LENGTH,
            ngrams=table,
            forks=forks,
            exact_steps=exact_steps,
            sequence=sequence,
            stop_ids=NEVER,
        ):
            pass

    runs: dict[str, Callable[[], object]] = {GREEDY: lambda: greedy(sequence, prefix)}
    for k in KS:
        for name, forks, r in (("r=0", 0, 0), ("r=1", 0, 1), ("with forks", LIBRARY.forks, LIBRARY.exact_steps)):
            runs[f"superposed {name} k={k}"] = partial(superposed, k, forks, r, None)
            if ngrams is not None:
                runs[f"superposed {name} k={k} with n-grams"] = partial(superposed, k, forks, r, ngrams)
        if k > 1:
            runs[f"sampled in one batch k={k}"] = lambda k=k: sampled(sequence, prefix, k, rng)
            runs[f"sampled in a row k={k}"] = lambda k=k: [sampled(sequence, prefix, 1, rng) for _ in range(k)]
    try:
        return interleaved(runs, rounds, ready)
    finally:
        sequence.close()


def greedy(sequence: Sequence, prefix: list[int]) -> list[int]:
    """Greedy decoding: the most probable token at each step."""
    logits = sequence.sync(prefix)
    ids = [int(logits.argmax())]
    while len(ids) < LENGTH:
        ids.append(int(sequence.feed(ids[-1:]).argmax()))
    return ids


def sampled(sequence: Sequence, prefix: list[int], k: int, rng: torch.Generator) -> list[list[int]]:
    """k sampled continuations, one row each in every pass; they share the cached prefix."""
    logits = sequence.sync(prefix).expand(k, -1)  # (k, V)
    forks = [sequence.fork() for _ in range(k)]
    drawn = [_draw(logits, rng)]
    while len(drawn) < LENGTH:
        rows = [Row(fork, [token]) for fork, token in zip(forks, drawn[-1], strict=True)]
        drawn.append(_draw(torch.stack(sequence.model.forward(rows)), rng))
    for fork in forks:
        fork.close()
    return [list(ids) for ids in zip(*drawn, strict=True)]


def _draw(logits: Tensor, rng: torch.Generator) -> list[int]:
    """Samples one token per row of (k, V) from its most probable tokens."""
    best, ids = logits.topk(SHORTLIST)
    return ids.gather(1, best.softmax(1).multinomial(1, generator=rng)).flatten().tolist()
