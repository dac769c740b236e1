"""`bench batches`: what speculation brings when several texts share each pass of the target.

Speculation uses the room that a pass over one token leaves. A pass over B texts with γ proposals each verifies
n = B·(γ + 1) tokens, so a larger batch leaves less room. One drafter proposes for all texts together, and each text has
its own sequence. Plain decoding of the same B texts, which gives the same tokens, is measured in turns with it.
`drafting_ms` is the drafter's time in one cycle, for all texts. `per_proposal` is τ/(γ + 1), the share of verified
tokens that become text; speculation pays only where a pass over n tokens takes less than τ passes over B.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median

from core.models import LanguageModel, load_model
from core.noise import SeededNoise
from core.speculative import Drafter
from core.speculative.cycles import Statistics, Text, cycles
from core.speculative.options import SpeculationOptions
from research import texts as text
from research.drafters import accept_length, best_drafter
from research.options import BackendOptions, Head, PrecisionOptions, Rounds, TextOptions
from research.report import Progress, Report, ReportRow

BATCHES = (1, 2, 3, 4, 8, 16)  # the page has three drafts by default
PROPOSALS = (2, 4, 8)  # γ, of each text in a pass
LENGTH = 32  # tokens of each text
PREFIX = 32


@dataclass
class Generated:
    """B texts to their end.

    Attributes:
        seconds, drafting, target: the whole time, and the drafters' and the target's part of it.
        statistics: of each text. ids: the texts, with their prefixes.
    """

    seconds: float = 0.0
    drafting: float = 0.0
    target: float = 0.0
    passes: int = 0
    statistics: list[Statistics] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.statistics)


@dataclass(frozen=True)
class BatchesOptions(BackendOptions, PrecisionOptions, TextOptions):
    repetitions: Rounds = 3
    head: Head = None


def measure(options: BatchesOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend, options.precision)
    prefixes = text.prefixes(model.tokenizer, text.load(options.text), max(BATCHES), PREFIX)
    drafter = best_drafter(model, [], progress, options.head)
    report = Report("batches")
    for batch in BATCHES:
        plain: list[Generated] = []
        drafted: dict[int, list[Generated]] = {most: [] for most in PROPOSALS}
        for number in range(options.repetitions):
            progress(f"{batch} texts, round {number + 1}")
            plain.append(together(model, prefixes[:batch], None, 0))
            for most in PROPOSALS:
                drafted[most].append(together(model, prefixes[:batch], drafter, most))
        report.rows += [row(drafter.name, batch, most, runs, plain) for most, runs in drafted.items()]
    drafter.close()
    model.close()
    return report


def together(
    model: LanguageModel, prefixes: list[list[int]], drafter: Drafter | None, most: int, length: int = LENGTH
) -> Generated:
    """Continues the prefixes at T = 1 in shared passes, each text with `most` proposals in a pass, or with one token
    without a drafter."""
    options = SpeculationOptions(
        mode="off" if drafter is None else "lossless",
        length=length,
        tree_size=most,
        depth=max(most, 1),  # no level is drafted that could not be verified
        stop_ids=frozenset(),
    )
    run = Generated()
    sequences = [model.open() for _ in prefixes]
    texts = []
    for number, (sequence, prefix) in enumerate(zip(sequences, prefixes, strict=True)):
        sequence.reveal()
        p = options.sampling.probabilities(sequence.sync(prefix), prefix)
        noise = SeededNoise(number)
        ids = [*prefix, noise.draw(p, len(prefix))]
        texts.append(Text(sequence, ids, len(ids) + length, p, noise=noise))
    began = time.perf_counter()
    running = cycles(texts, options, drafter)
    rows, _ = next(running)
    while rows:
        started = time.perf_counter()
        after = model.forward(rows)
        seconds = time.perf_counter() - started
        run.target += seconds
        run.passes += 1
        rows, _ = running.send((after, seconds))
    run.seconds = time.perf_counter() - began
    run.statistics, run.ids = [text.statistics for text in texts], [text.ids for text in texts]
    run.drafting = sum(s.drafting for s in run.statistics)
    for sequence in sequences:
        sequence.close()
    return run


def row(name: str, batch: int, most: int, runs: list[Generated], plain: list[Generated]) -> ReportRow:
    """Returns one line of the table: medians over rounds, ratios within a round."""
    tau = accept_length(runs[0].statistics)
    return {
        "drafter": name,
        "texts": batch,
        "proposals": most,
        "tokens_per_s": median(run.tokens / run.seconds for run in runs),
        "plain_tokens_per_s": median(run.tokens / run.seconds for run in plain),
        "speed_up": median(
            run.tokens / run.seconds * other.seconds / other.tokens for run, other in zip(runs, plain, strict=True)
        ),
        "accept_length": tau,
        "per_proposal": tau / (most + 1),
        "pass_ms": median(1000 * run.target / run.passes for run in runs),
        "plain_pass_ms": median(1000 * run.target / run.passes for run in plain),
        "drafting_ms": median(1000 * run.drafting / run.passes for run in runs),
        "drafting_percent": median(100 * run.drafting / run.seconds for run in runs),
    }
