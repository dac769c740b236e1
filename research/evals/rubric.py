"""`eval rubric`: stories of sampling rules, rated by a language model on five axes (Top-W, Tables 3 and 5 to 8).

Every rule writes stories after the paper's three prompts, at each temperature. A judge at an OpenAI-compatible server
(`--server URL`) sees one story of each rule in a list without names, and rates each from 1 to 10 on every axis, and
names the winner. The instruction is that of the paper's appendix L, with the form of the reply.

A judge that favours a place in the list must not favour a rule: of as many judgements in a row as there are rules,
each rule stands once at every place. A reply counts only if it rates every story once and has one winner; any other is
`unclear`, and all its stories are left out. The replies are kept in the folder of `--learned`; the same command asks
about the unclear ones again.

A figure is a mean over the stories of a rule that were rated, `_ci` half of its 95 % confidence interval: over stories
of these prompts, not over prompts. `difference` is that of the average of the five axes to `--beside`, in the same
judgements. Only `--server` is connected to; it receives the stories.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Annotated, Any, TypedDict

import typer

from core.autocomplete import load_autocomplete
from core.controls import PRESETS
from core.errors import InputError
from core.modes.start import draft
from core.options import Value
from research.evals.answers import as_drawn
from research.judge_server import JudgeServer
from research.learned import read_results, write_results
from research.options import (
    BackendOptions,
    JudgeServerOptions,
    Learned,
    Length,
    Rules,
    Temperatures,
    amount,
    chosen,
    numbers,
)
from research.report import Progress, Report, ReportRow, counted, turned
from research.scores import half_interval, mean

AXES = ("diversity", "originality", "narrative_flow", "emotional_impact", "imagery")
INSTRUCTION = """\
You are an expert judge evaluating AI-generated creative writing. I am testing the diversity and coherent writing \
capabilities of different models. I will paste their responses to one prompt here. Rate responses based on the \
following metrics:
(1) Diversity: Novelty and uniqueness of ideas;
(2) Originality: Innovative approach to the prompt;
(3) Narrative Flow: Coherence of the text;
(4) Emotional Impact: Ability to evoke feelings;
(5) Imagery: Vividness of descriptions.
Rate each metric from 1 to 10. Also, suggest the overall winner: the response that best maintains high coherence while \
demonstrating high diversity.

Reply with one line for each response, its number and its five ratings in this order, in the form
Response NUMBER: RATING, RATING, RATING, RATING, RATING
and a last line in the form
Winner: NUMBER
Write nothing else."""
PROMPTS = (
    "Write a story about an alien civilization’s first contact with Earth from their perspective.",
    "Write a story about a world where time suddenly starts moving backwards.",
    "Write a story about a mysterious door that appears in an unexpected place.",
)
PAPERS = {preset.name: preset.values for preset in PRESETS}
RULES: dict[str, tuple[str, Mapping[str, Value]]] = {
    **{name: (name, {}) for name in ("top-p", "min-p", "top-h", "top-n-sigma")},
    "top-w (the paper's)": ("top-w", PAPERS["Top-W, the paper's"]),
    "top-w, β by temperature": ("top-w", PAPERS["Top-W, the paper's, β by temperature"]),  # Table 8
}
TEMPERATURES = (1.0, 1.5, 2.0)
RATING = r"(10(?:\.0)?|[1-9](?:\.\d)?)(?:/10)?"
RATINGS = re.compile(rf"(?:response )?(\d+) ?[:.)] ?{RATING}{rf'[ ,;]+{RATING}' * 4}\.?", re.IGNORECASE)
WINNER = re.compile(r"(?:overall )?winner ?: ?(?:response )?(\d+)\.?", re.IGNORECASE)
RESULTS, MADE_OF = "rubric.json", "model, rules, temperatures, numbers or judge"


class Judgement(TypedDict):
    """One story of each rule after one prompt, and the judge's reply. The ratings on the five axes, by rule, and the
    rule that won are None until a reply is clear."""

    temperature: float
    prompt: str
    stories: dict[str, str]
    reply: str
    ratings: dict[str, list[float]] | None
    winner: str | None


@dataclass(frozen=True)
class RubricOptions(BackendOptions, JudgeServerOptions):
    learned: Learned = None
    rules: Rules = None
    beside: Annotated[str, typer.Option(help="The rule that the others are compared with.", metavar="NAME")] = "min-p"
    temperatures: Temperatures = None
    repetitions: Annotated[int, amount("Stories of each rule after each of three prompts, at each temperature.")] = 6
    length: Length = 256


def measure(options: RubricOptions, progress: Progress) -> Report:
    if options.learned is None or options.server is None:
        raise InputError("A server judges, and the judgements are kept; give --server URL --learned FOLDER.")
    rules = chosen("rules", options.rules, RULES)
    if options.beside not in rules:
        raise InputError(f"beside {options.beside!r} given; one of {'; '.join(rules)} expected.")
    temperatures = numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES
    path, report = options.learned / RESULTS, Report("eval rubric")
    with closing(JudgeServer(options.server, options.judge_model)) as server:
        made_of = [options.model, [*rules], temperatures, options.repetitions, options.length, server.name]
        identity = json.dumps(made_of)
        judgements: list[Judgement] | None = read_results(path, identity, MADE_OF)
        if judgements is None:
            judgements = [*written(options, rules, temperatures, progress)]
            write_results(path, identity, judgements)
        for number, judgement in enumerate(counted(judgements, "judgement", progress)):
            if judgement["ratings"] is None:
                judge(judgement, number, server)
                write_results(path, identity, judgements)
    for temperature in temperatures:
        of_temperature = [each for each in judgements if each["temperature"] == temperature]
        report.rows += [row(rule, options.beside, temperature, server.name, of_temperature) for rule in rules]
    return report


def written(
    options: RubricOptions,
    rules: Mapping[str, tuple[str, Mapping[str, Value]]],
    temperatures: tuple[float, ...],
    progress: Progress,
) -> Iterator[Judgement]:
    """Yields the stories that are judged together. Every rule draws with the same noise."""
    from research.chat import chat_template

    chat = chat_template(options.model)
    autocomplete = load_autocomplete(options.model, options.backend, None)
    model, tokenizer = autocomplete.model, autocomplete.model.tokenizer
    with closing(model), closing(model.open()) as sequence:
        for temperature, prompt in product(temperatures, PROMPTS):
            if chat is None:
                ids = tokenizer.start_ids + tokenizer.encode(f"{prompt}\n\n")
            else:
                ids = chat.ids(tokenizer, [{"role": "user", "content": prompt}])
            stories: dict[str, list[str]] = {}
            for name, (rule, values) in rules.items():
                progress(f"T = {temperature:g}, {name}: {prompt}")
                sampler = autocomplete.sampler(rule, values, temperature)
                how: dict[str, Any] = {"k": options.repetitions, "length": options.length, "end_below": 0.0}
                *_, last = draft(model, ids, "sampled", sequence=sequence, rule=sampler, seed=0, **how)
                stories[name] = [tokenizer.decode(story) for story in as_drawn(last)]
            for together in zip(*stories.values(), strict=True):
                yield {
                    "temperature": temperature,
                    "prompt": prompt,
                    "stories": dict(zip(stories, together, strict=True)),
                    "reply": "",
                    "ratings": None,
                    "winner": None,
                }


def judge(judgement: Judgement, number: int, server: JudgeServer) -> None:
    """Asks for the ratings of one story of each rule, and keeps the reply. `number` decides the order of the list."""
    stories = judgement["stories"]
    names = shown(sorted(stories), number)  # as in the file, whose names are sorted
    listed = "\n\n".join(f"Response {at}:\n{stories[name].strip()}" for at, name in enumerate(names, 1))
    asked = f"Prompt: {judgement['prompt']}\n\n{listed}"
    judgement["reply"] = server.reply(INSTRUCTION, asked, tokens=32 * (len(names) + 1))
    if (clear := ratings_in(judgement["reply"], len(names))) is not None:
        ratings, winner = clear
        judgement["ratings"] = dict(zip(names, ratings, strict=True))
        judgement["winner"] = names[winner - 1]


def shown(names: list[str], number: int) -> list[str]:
    """Returns the order in which a judge sees the rules. In each block of as many judgements as there are rules, every
    rule stands once at each place; each block begins with another order."""
    block, turn = divmod(number, len(names))
    return turned(random.Random(block).sample(names, len(names)), turn)


def ratings_in(reply: str, count: int) -> tuple[list[list[float]], int] | None:
    """Returns the five ratings of each response in a reply, and the winner's number from 1; None for a reply that is
    unclear: each response must have one line of ratings, one line must name the winner, and no other may have a
    number."""
    ratings: dict[str, list[float]] = {}
    winners: list[str] = []
    for line in map(_plain, reply.splitlines()):
        if match := RATINGS.fullmatch(line):
            number, *values = match.groups()
            if number in ratings:
                return None
            ratings[number] = [float(value) for value in values]
        elif match := WINNER.fullmatch(line):
            winners.append(match[1])
        elif re.search(r"\d", line):
            return None
    expected = [str(number) for number in range(1, count + 1)]
    if ratings.keys() != set(expected) or len(winners) != 1 or winners[0] not in expected:
        return None
    return [ratings[number] for number in expected], int(winners[0])


def _plain(line: str) -> str:
    """Returns a line without marks of Markdown and with single spaces."""
    return " ".join(re.sub(r"[*_`]|^[\s>#-]+", "", line).split())


def row(rule: str, beside: str, temperature: float, judge: str, judgements: list[Judgement]) -> ReportRow:
    """Returns one line of the table."""
    clear = [each["ratings"] for each in judgements if each["ratings"] is not None]
    averages, others = ([fmean(ratings[name]) for ratings in clear] for name in (rule, beside))
    apart = [ours - theirs for ours, theirs in zip(averages, others, strict=True)]
    figures: ReportRow = {
        "rule": rule,
        "T": temperature,
        "judge": judge,
        "stories": len(clear),
        "unclear": len(judgements) - len(clear),
    }
    by_axis = {axis: [ratings[rule][at] for ratings in clear] for at, axis in enumerate(AXES)}
    for name, values in {**by_axis, "average": averages, "difference": apart}.items():
        figures |= {name: mean(values), f"{name}_ci": half_interval(values)}
    return figures | {"wins": sum(each["winner"] == rule for each in judgements)}
