"""`eval judge`: which of two methods' drafts a person or a language model prefers (Superposed Decoding, section 4.4,
Figures 7 and 12; Top-nσ, Tables 3 and 6, with a rule beside greedy drafts).

At each place both methods make drafts of the same length. The judge sees the text before the caret and all drafts in
one list, shuffled and without the methods' names, and chooses the best one; the method that made it wins the place.
`--versus 3v1` shows three drafts of the first method beside one of the second. A draft that both made is shown once,
and its choice is a tie. A place where both made the same drafts is a tie and nobody is asked.

The judge is the person at the terminal, or an OpenAI-compatible server (`--server URL`). A server is asked twice about
a place, with the list in reverse order the second time, because language models prefer places in a list; it is a tie
if the answers contradict each other. Only `--server` connects to anything; it sends the texts and the drafts.

`p` is that of the exact two-sided sign test over the places that are no ties: how probable a result at most as probable
as this one is, if each draft is chosen equally often. `share` is the share of wins, with its 95 % interval. `wins_n`
counts the wins of the first method's n-th draft (Figure 7), without those for which a server named two drafts of it.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Literal, NotRequired, TypedDict

import typer

from core.autocomplete import Autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.ngram.shelf import interpolation
from core.options import Value
from research.evals.methods import NamedMethod, methods, sampled
from research.evals.perplexity import perplexity
from research.judge_server import JudgeServer
from research.learned import read_results, write_results
from research.options import (
    AutocompleteOptions,
    JudgeServerOptions,
    Learned,
    Length,
    PlacesOptions,
    amount,
    loaded,
)
from research.places import LENGTH, Place, places, texts
from research.report import Progress, Report, ReportRow, counted
from training.calibration import wilson

FIRST, SECOND, VERSUS = "superposed, the paper's", "nucleus of top-40, without n-grams", "3v1"
# The rules of Top-nσ's Tables 3 and 6, and those of Top-W's, at their papers' settings
RULES: dict[str, dict[str, Value]] = {
    "top-k": {"top_k": 20},
    **{name: {} for name in ("mirostat", "eta", "top-p", "min-p", "top-n-sigma", "top-h", "top-w")},
}
TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 10.0)
MADE = 3  # drafts of a method of which fewer are shown: those that the model finds most probable
RESULTS, MADE_OF = "judgements.json", "text, model, methods or judge"
INSTRUCTION = (
    "You compare continuations of a text. Choose the one that continues the text best: it should be coherent with the "
    "text, fluent and natural. Answer with its number alone, or with 0 if none is better than the others."
)
Winner = Literal["first", "second", "tie"]
Choose = Callable[[str, list[str]], int | None]


class Quit(Exception):
    """The judge stops; what was judged so far is kept."""


class JudgedPlace(TypedDict):
    """One place: the text before the caret, the drafts of both methods, and the winner; None: not yet judged. `rank` is
    the number of the first method's draft that won, from 1."""

    text: str
    first: list[str]
    second: list[str]
    winner: Winner | None
    rank: NotRequired[int | None]


@dataclass(frozen=True)
class JudgeOptions(AutocompleteOptions, PlacesOptions, JudgeServerOptions):
    learned: Learned = None
    repetitions: Annotated[int, amount("Places per kind of text.")] = 20
    length: Length = LENGTH
    method: Annotated[str, typer.Option(help="The first method.", metavar="NAME")] = FIRST
    beside: Annotated[str, typer.Option(help="The method that it is compared with.", metavar="NAME")] = SECOND
    versus: Annotated[str, typer.Option(help="Drafts of both methods that are shown.", metavar="NvN")] = VERSUS


def asks_a_person(options: JudgeOptions) -> bool:
    """Whether the terminal is needed for questions, so that nothing else may draw there."""
    return options.server is None


def measure(options: JudgeOptions, progress: Progress) -> Report:
    if options.learned is None:
        raise InputError("eval judge keeps each judgement, so that you can stop and go on; give --learned FOLDER.")
    n, m = numbers_of(options.versus)
    names = options.method, options.beside
    length, count = options.length, options.repetitions
    server = JudgeServer(options.server, options.judge_model) if options.server else None
    judge = server.name if server else "a person"
    documents, path = texts(options.text), options.learned / RESULTS
    digest = sha256("\n".join(text for of_kind in documents.values() for text in of_kind).encode()).hexdigest()
    made_of = [digest, options.model, str(options.store), str(options.adapter), names, n, m, judge]
    identity = json.dumps([*made_of, options.context, length, count])
    judged: list[JudgedPlace] | None = read_results(path, identity, MADE_OF)
    if judged is None:
        judged = drafted(options, documents, names, (n, m), length, count, progress)
        write_results(path, identity, judged)
    choose = by_server(server) if server else at_the_terminal
    open_ones = [(at, place) for at, place in enumerate(judged) if place["winner"] is None]
    try:
        for at, place in counted(open_ones, "judgement", progress):
            place["winner"], place["rank"] = decided(place, at, choose, twice=server is not None)
            write_results(path, identity, judged)
    except Quit:
        progress(f"stopped; the same command goes on from {path}")
    finally:
        if server:
            server.close()
    return Report("eval judge", [row(names, (n, m), judge, judged)])


def numbers_of(versus: str) -> tuple[int, int]:
    """Returns the numbers of drafts on both sides of "3v1". Raises InputError for another text."""
    if (match := re.fullmatch(r"([1-9])v([1-9])", versus)) is None:
        raise InputError(f"versus {versus!r} given; two numbers from 1 to 9 as in 3v1 expected.")
    return int(match[1]), int(match[2])


def drafted(
    options: JudgeOptions,
    documents: dict[str, list[str]],
    names: tuple[str, str],
    numbers: tuple[int, int],
    length: int,
    count: int,
    progress: Progress,
) -> list[JudgedPlace]:
    """Makes the drafts of both methods at all places. Raises InputError for an unknown method."""
    autocomplete = loaded(options)
    model, base = autocomplete.model, autocomplete.ngrams
    known: dict[str, NamedMethod] = {}
    for each in methods(base, interpolation(base)):
        known[each.name if each.ngrams or base is None else f"{each.name}, without n-grams"] = each
        if base is None:
            known[f"{each.name}, without n-grams"] = each
    known |= {each.name: each for each in rules(autocomplete)}
    for option, name in zip(("method", "beside"), names, strict=True):
        if name not in known:
            raise InputError(f"{option} {name!r} given; one of {'; '.join(known)} expected.")
    chosen = places(model.tokenizer, documents, count, options.context, length=length)
    judged: list[JudgedPlace] = []
    for place in counted(chosen, "drafts of place", progress):
        first, second = (_texts(model, place, known[name], n, length) for name, n in zip(names, numbers, strict=True))
        text = model.tokenizer.decode(place.before)
        judged.append({"text": text, "first": first, "second": second, "winner": None})
    model.close()
    return judged


def rules(autocomplete: Autocomplete) -> list[NamedMethod]:
    """Returns each sampling rule at each temperature, without n-grams."""
    return [
        NamedMethod(f"{name}, T = {t:g}", False, sampled(autocomplete.sampler(name, values, t)), sampled=True)
        for name, values in RULES.items()
        for t in TEMPERATURES
    ]


def _texts(model: LanguageModel, place: Place, method: NamedMethod, n: int, length: int) -> list[str]:
    """Returns n drafts as text. Of a method that ranks its drafts, those that the model finds most probable out of at
    least MADE, the most probable first; samples are independent, and another choice among them would be another
    method."""
    sequence = model.open()
    sequence.sync(place.before)
    drafts = method.draft(sequence, place.before, n if method.sampled else max(n, MADE), length)
    if not method.sampled:
        drafts = sorted((ids for ids in drafts if ids), key=lambda ids: perplexity(sequence, place.before, ids))
    sequence.close()
    return [model.tokenizer.decode(ids) for ids in drafts[:n]]


def decided(place: JudgedPlace, number: int, choose: Choose, twice: bool) -> tuple[Winner | None, int | None]:
    """Returns the winner of one place, None if the judge gave no usable answer; and the number of the first method's
    draft that won, None without one.

    Args:
        number: of the place; the list's order depends on it alone, so it is the same when the evaluation goes on.
        twice: whether to ask again with the list in reverse order, and count a contradiction as a tie.
    """
    drafts = [*dict.fromkeys([*place["first"], *place["second"]])]
    if set(place["first"]) == set(place["second"]):
        return "tie", None
    random.Random(number).shuffle(drafts)
    best: list[str | None] = []
    for shown in (drafts, drafts[::-1]) if twice else (drafts,):
        if (at := choose(place["text"], shown)) is None:
            return None, None
        best.append(shown[at - 1] if at else None)
    winners: set[Winner] = {"tie" if draft is None else _maker(place, draft) for draft in best}
    winner = winners.pop() if len(winners) == 1 else "tie"
    one = best[0] if len(set(best)) == 1 else None
    return winner, place["first"].index(one) + 1 if winner == "first" and one is not None else None


def _maker(place: JudgedPlace, draft: str) -> Winner:
    by_first, by_second = draft in place["first"], draft in place["second"]
    return "tie" if by_first and by_second else "first" if by_first else "second"


def question(text: str, drafts: list[str]) -> str:
    """Returns what the judge reads."""
    listed = "\n".join(f"{n}. …{_plain(draft.replace(chr(10), ' ⏎ '))}" for n, draft in enumerate(drafts, 1))
    return f"Text:\n{_plain(text)}\n\nContinuations:\n{listed}"


def _plain(text: str) -> str:
    """Returns a text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "·" for c in text)


def at_the_terminal(text: str, drafts: list[str]) -> int:
    """Asks the person at the terminal for the number of the best draft. Raises Quit for q or the end of the input."""
    typer.echo(f"\n{question(text, drafts)}\n", err=True)
    while True:
        typer.echo(f"The best (1 to {len(drafts)}; 0: none is better; q: stop): ", nl=False, err=True)
        try:
            answer = input().strip().lower()
        except EOFError:
            raise Quit from None
        if answer == "q":
            raise Quit
        if answer.isascii() and answer.isdigit() and int(answer) <= len(drafts):
            return int(answer)


def by_server(server: JudgeServer) -> Choose:
    """Returns the choice of a server's model; None for a reply that does not have one number of a draft alone."""

    def choose(text: str, drafts: list[str]) -> int | None:
        numbers = set(re.findall(r"\d+", server.reply(INSTRUCTION, question(text, drafts), tokens=8)))
        return next((n for n in range(len(drafts) + 1) if numbers == {str(n)}), None)

    return choose


def row(names: tuple[str, str], numbers: tuple[int, int], judge: str, judged: list[JudgedPlace]) -> ReportRow:
    """Returns the result. `chance` is the share of wins if each draft is chosen equally often."""
    winners = [place["winner"] for place in judged]
    ranks = [place.get("rank") for place in judged]
    wins, losses = winners.count("first"), winners.count("second")
    chance = numbers[0] / sum(numbers)
    low, high = wilson(wins, wins + losses)
    return {
        "method": names[0],
        "beside": names[1],
        "drafts": f"{numbers[0]}v{numbers[1]}",
        "judge": judge,
        "places": len(judged),
        "wins": wins,
        "losses": losses,
        "ties": winners.count("tie"),
        "not_judged": winners.count(None),
        "share": wins / (wins + losses) if wins + losses else math.nan,
        "share_low": low,
        "share_high": high,
        "chance": chance,
        "p": sign_test(wins, losses, chance),
        **{f"wins_{n}": ranks.count(n) for n in range(1, numbers[0] + 1)},
    }


def sign_test(wins: int, losses: int, chance: float = 0.5) -> float:
    """Returns the exact two-sided p: the probability of all results that are at most as probable as this one; 1 without
    any result."""
    n = wins + losses
    every = [math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1)]
    return min(1.0, math.fsum(p for p in every if p <= every[wins] * (1 + 1e-9)))
