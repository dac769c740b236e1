"""`eval answers`: correct answers of sampling rules against the temperature (Top-nσ, Table 1, Figures 4 and 5; Top-W,
Table 1).

The questions are those of `templated`, or those of a file (`research.questions`), for a larger model. Every rule
samples N answers to each question (`--votes`). `exact_match` is the share of correct answers; `majority` the share of
questions whose most frequent answer is correct (majority@N), and `majority_n` that of the first n answers (Figure 4);
`difference` is in exact match to Top-nσ at the same temperature, by the same questions. `_ci` is half of the 95 %
confidence interval over questions. The rows `n = …` are the map of n × T of Top-nσ's Figure 5; `greedy` is the
deterministic peer.

With `--select-at both` every rule also selects at T = 1, before the temperature; these rows end in "first". Top-k 20 is
among the rules, which is indifferent to the order, as is Top-nσ.

`--matched` gives rules with a parameter that keeps more or fewer tokens the one with which they have as much variety as
Top-nσ: the same mean entropy, in nats, after the rule and the temperature, at places of the app's own text. Then a
difference is the rule's and not its setting's. Top-W is among them with each potential; `to_none` is the difference to
the one without geometry.

With `--exact` no answer is sampled: `exact_match` is the mean probability of a right answer
(`research.exact_answers`), so only the choice of the questions is left to chance. There is no majority then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any, Literal, get_args

import torch
import typer

from core.autocomplete import Autocomplete, load_autocomplete
from core.controls import PRESETS
from core.drafting.drafts import Drafts
from core.errors import InputError
from core.modes.start import draft
from core.options import SelectAt, Value
from core.samplers.base import Rule
from research.evals.templated import KINDS, questions
from research.exact_answers import p_right
from research.exact_answers import read as read_answers
from research.options import BackendOptions, PlotOptions, QuestionOptions, Rules, Temperatures, amount, chosen, numbers
from research.plots import heat_map, lines, page, series
from research.questions import Question, read
from research.report import Progress, Report, ReportRow, counted, number_in, one_thread, text_in
from research.scores import half_interval
from research.texts import load, prefixes

QUESTIONS = 16  # per kind
N = 8
LENGTH = 4  # tokens of an answer to a question of `templated`
CONTINUED, REPLY = 16, 256  # the same for a file: of a continuation, of a reply
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
SIGMAS = (0.3, 0.5, 0.8, 1.3, 2.0, 3.0)  # n of Top-nσ, beside its default
PEER = "top-n-sigma"


@dataclass(frozen=True)
class Tuned:
    """The parameter of a rule that is matched to Top-nσ's variety; a value that keeps few tokens, and one that keeps
    many; and the rule's other values."""

    rule: str
    parameter: str
    few: float
    many: float
    values: Mapping[str, Value] = field(default_factory=dict)


NONE = "top-w none"
TUNED = {
    "top-p": Tuned("top-p", "top_p", 0.0, 1.0),
    "min-p": Tuned("min-p", "min_p", 1.0, 0.0),
    "top-h": Tuned("top-h", "alpha", 0.01, 1.0),
    "top-w": Tuned("top-w", "beta", 2.2, 10.0),
    NONE: Tuned("top-w", "beta", 2.2, 10.0, {"potential": "none"}),
    "top-w repulsive": Tuned("top-w", "beta", 2.2, 10.0, {"potential": "repulsive"}),
    "eta": Tuned("eta", "epsilon", 0.1, 1e-5),
    "typical": Tuned("typical", "mass", 0.01, 1.0),
}
PLACES = 64
BISECTIONS = 12
NEVER = frozenset[int]()  # no token ends an answer


Setting = tuple[str, dict[str, Value], SelectAt]  # a rule, its values, and where it selects
FIRST = " first"  # after the name of a rule that selects before the temperature


def settings(orders: Sequence[SelectAt] = ("temperature",)) -> dict[str, Setting]:
    """Rules by the names in the table: the rule's name and its values. A rule that is indifferent to the order has one
    row."""
    paper = next(preset for preset in PRESETS if preset.name == "Top-W, the paper's")
    plain: dict[str, tuple[str, dict[str, Value]]] = {name: (name, {}) for name in ("none", "top-p", "min-p", "top-h")}
    plain |= {PEER: (PEER, {}), "top-w": ("top-w", {}), "top-w (the paper's)": ("top-w", dict(paper.values))}
    if "1" in orders:
        plain |= {"p-less": ("p-less", {}), "top-k 20": ("top-k", {"top_k": 20})}
        plain["top-p .744"] = ("top-p", {"top_p": 0.744})  # keeps as many tokens as top-nσ at T = 1, in the median
    for n in SIGMAS:
        plain[f"n = {n:g}"] = ("top-n-sigma", {"n": n})
    both: dict[tuple[str, SelectAt], Setting] = {
        (name, order): (*setting, order) for name, setting in plain.items() for order in orders
    }
    return {
        name + (FIRST if order == "1" else ""): setting
        for (name, order), setting in both.items()
        if order == orders[0] or setting[0] not in ("none", "top-n-sigma", "top-k")
    }


@dataclass(frozen=True)
class AnswersOptions(PlotOptions, BackendOptions, QuestionOptions):
    repetitions: Annotated[int | None, amount("Questions of each kind; by default 16, or all of a file.")] = None
    length: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Tokens of an answer, by default 4; or of a file's 16, and of a reply 256."),
    ] = None
    votes: Annotated[int | None, typer.Option(min=1, max=256, help="Answers to each question; by default 8.")] = None
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Compute the probability of a right answer, instead of sampling answers."),
    ] = False
    rules: Rules = None
    temperatures: Temperatures = None
    select_at: Annotated[
        Literal["temperature", "1", "both"],
        typer.Option(help="Let rules select at the temperature, at 1, or show both.", metavar="temperature|1|both"),
    ] = "temperature"

    matched: Annotated[
        bool, typer.Option("--matched", help="Compare rules at as much variety as Top-nσ, where they select first.")
    ] = False

    def __post_init__(self) -> None:
        if self.matched and not self.exact:
            raise InputError("--matched compares probabilities; add --exact.")
        if self.exact and (self.votes is not None or self.length is not None):
            raise InputError("--votes and --length change nothing with --exact, which samples no answer; omit them.")


def measure(options: AnswersOptions, progress: Progress) -> Report:
    orders: tuple[SelectAt, ...] = get_args(SelectAt) if options.select_at == "both" else (options.select_at,)
    tuned = chosen("rules", options.rules, TUNED) if options.matched else {}
    rules = {} if options.matched else chosen("rules", options.rules, settings(orders))
    temperatures = numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES
    asked = (
        read(options.text, options.repetitions)
        if options.text is not None
        else {kind: questions(kind, options.repetitions or QUESTIONS) for kind in KINDS}
    )
    chat = None
    if any(question.asked for of_kind in asked.values() for question in of_kind):
        from research.chat import chat_template

        chat = chat_template(options.model)
    autocomplete = load_autocomplete(options.model, options.backend, None)
    model, report, votes = autocomplete.model, Report("eval answers"), options.votes or N
    if options.exact:
        for kind, of_kind in asked.items():
            for temperature in temperatures:
                of_rules = matched(autocomplete, tuned, temperature, progress) if options.matched else rules
                report.rows += _exact(autocomplete, kind, of_kind, of_rules, [temperature], progress)
        model.close()
        return report
    sequence = model.open()
    for kind, of_kind in asked.items():
        sample = [(question, question.ids(model.tokenizer, chat)) for question in of_kind]

        def answers(question: Question, ids: list[int], mode: str, k: int, **how: Any) -> list[str]:
            if options.text is None:
                how |= {"length": options.length or LENGTH, "stop_ids": NEVER}
            else:
                how |= {"length": options.length or (REPLY if question.asked else CONTINUED)}
            *_, last = draft(model, ids, mode, sequence=sequence, k=k, end_below=0.0, **how)
            return [question.answer_in(model.tokenizer.decode(sampled)) for sampled in as_drawn(last)]

        samplers = {
            (temperature, name): _sampler(autocomplete, setting, temperature)
            for temperature in temperatures
            for name, setting in rules.items()
        }
        greedy: list[list[str]] = []
        given: dict[tuple[float, str], list[list[str]]] = {key: [] for key in samplers}
        # All rules answer a question before the next one, so that the model reads it once.
        for i, (question, ids) in enumerate(counted(sample, f"{kind}: question", progress)):
            greedy.append(answers(question, ids, "greedy", 1))
            for key, sampler in samplers.items():
                given[key].append(answers(question, ids, "sampled", votes, rule=sampler, seed=i))
        report.rows.append(row(kind, "greedy", 0.0, of_kind, greedy))
        report.rows += [
            row(kind, name, temperature, of_kind, each, given.get((temperature, PEER)))
            for (temperature, name), each in given.items()
        ]
    sequence.close()
    model.close()
    return report


def as_drawn(drafts: Drafts) -> list[list[int]]:
    """The drafts in the order in which they were drawn: a mode lists the most probable first, which are right more
    often than n draws."""
    return [draft.ids for draft in sorted(drafts.drafts, key=lambda draft: draft.slot)]


def _exact(
    autocomplete: Autocomplete,
    kind: str,
    sample: list[Question],
    rules: dict[str, Setting],
    temperatures: Sequence[float],
    progress: Progress,
) -> Iterator[ReportRow]:
    """Yields the rows of one kind, computed from the probability of a right answer to each question."""
    progress(f"{kind}: reading the questions")
    with one_thread():
        answers = read_answers(autocomplete.model, sample)
        greedy = p_right(answers, autocomplete.sampler("greedy"))
        yield about(kind, "greedy", 0.0, sample) | compared(greedy)
        for temperature in temperatures:
            right: dict[str, list[float]] = {}
            for name, setting in rules.items():
                progress(f"{kind}: {name}, T = {temperature:g}")
                right[name] = p_right(answers, _sampler(autocomplete, setting, temperature))
            none = next((of_rule for name, of_rule in right.items() if name.startswith(NONE)), None)
            for name, of_rule in right.items():
                columns = about(kind, name, temperature, sample) | compared(of_rule, right.get(PEER))
                if none is not None and name.startswith("top-w") and of_rule is not none:
                    columns |= difference("to_none", of_rule, none)
                yield columns


def matched(
    autocomplete: Autocomplete, tuned: Mapping[str, Tuned], temperature: float, progress: Progress
) -> dict[str, Setting]:
    """Top-nσ, and rules that select first with the parameter that gives them its variety."""
    tokenizer, sequence = autocomplete.model.tokenizer, autocomplete.model.open()
    places = torch.stack([sequence.sync(ids) for ids in prefixes(tokenizer, load(), PLACES)])
    sequence.close()

    def variety(setting: Setting) -> float:
        q = _sampler(autocomplete, setting, temperature)(None, places).double().log_softmax(1)
        return float(-torch.where(q.isfinite(), q.exp() * q, 0).sum(1).mean())

    found: dict[str, Setting] = {PEER: (PEER, {}, "1"), "p-less": ("p-less", {}, "1")}
    wanted = variety(found[PEER])
    for name, of_rule in tuned.items():
        progress(f"{name}: its variety at T = {temperature:g}")

        def setting(value: float, of_rule: Tuned = of_rule) -> Setting:
            return of_rule.rule, {**of_rule.values, of_rule.parameter: value}, "1"

        low, high = of_rule.few, of_rule.many
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if variety(setting(middle)) < wanted else (low, middle)
        found[f"{name}, {of_rule.parameter} = {low:.3g}"] = setting(low)
    return found


def _sampler(autocomplete: Autocomplete, setting: Setting, temperature: float) -> Rule:
    rule, values, select_at = setting
    return autocomplete.sampler(rule, values, temperature, select_at)


def row(
    kind: str,
    rule: str,
    temperature: float,
    sample: list[Question],
    answers: list[list[str]],
    peers: list[list[str]] | None = None,
) -> ReportRow:
    """Returns one line of the table. `answers[i]` are the answers to `sample[i]`, `peers[i]` those of PEER."""
    shares, most = _shares(sample, answers), _majorities(sample, answers)
    return (
        about(kind, rule, temperature, sample)
        | {"majority": fmean(most), "majority_ci": half_interval(most)}
        | {f"majority_{n}": fmean(_majorities(sample, [votes[:n] for votes in answers])) for n in fewer(answers)}
        | compared(shares, None if peers is None else _shares(sample, peers))
    )


def fewer(answers: list[list[str]]) -> list[int]:
    """Returns the powers of two below the number of answers to a question."""
    most = max(map(len, answers), default=0)
    return [2**n for n in range(most.bit_length()) if 2**n < most]


def about(kind: str, rule: str, temperature: float, sample: list[Question]) -> ReportRow:
    return {"kind": kind, "rule": rule, "T": temperature, "questions": len(sample)}


def compared(shares: list[float], peers: list[float] | None = None) -> ReportRow:
    """Returns the mean share of right answers, and its difference to that of PEER, by the same questions."""
    figures: ReportRow = {"exact_match": fmean(shares), "exact_match_ci": half_interval(shares)}
    return figures if peers is None else figures | difference("difference", shares, peers)


def difference(column: str, shares: list[float], peers: list[float]) -> ReportRow:
    """Returns the mean difference of two rules in the same questions, and half of its interval."""
    apart = [ours - theirs for ours, theirs in zip(shares, peers, strict=True)]
    return {column: fmean(apart), f"{column}_ci": half_interval(apart)}


def _majorities(sample: list[Question], answers: list[list[str]]) -> list[float]:
    """Returns for each question 1 if its most frequent answer is correct, else 0; of equally frequent ones the first
    counts."""
    return [
        float(Counter(votes).most_common(1)[0][0] == question.answer) if votes else 0.0
        for question, votes in zip(sample, answers, strict=True)
    ]


def _shares(sample: list[Question], answers: list[list[str]]) -> list[float]:
    """Returns the share of correct answers to each question; 0 if all ended at once."""
    return [
        fmean(text == question.answer for text in votes) if votes else 0.0
        for question, votes in zip(sample, answers, strict=True)
    ]


def plots(report: Report) -> str:
    """Exact match and majority against T for every rule, and Top-nσ's exact match as a map of n × T (its Figure 5)."""
    charts = []
    for kind in dict.fromkeys(text_in(row, "kind") for row in report.rows):
        rows = [r for r in report.rows if r["kind"] == kind and r["rule"] != "greedy"]
        rules = [r for r in rows if not text_in(r, "rule").startswith("n =")]
        for figure in ("exact_match", "majority"):
            if not all(figure in r for r in rules) or not rules:
                continue
            title = f"{kind}: {figure.replace('_', ' ')}"
            charts.append(lines(title, "temperature", series(rules, "rule", "T", figure)))
        of_n = {
            (float(text_in(r, "rule")[4:]), number_in(r, "T")): number_in(r, "exact_match")
            for r in rows
            if text_in(r, "rule").startswith("n =")
        }
        if of_n:
            charts.append(heat_map(f"{kind}: exact match of Top-nσ", "n", "T", of_n))
    return page(charts, across=3)
