"""`bench ngram`: bytes per n-gram, time per look-up, opening and building, beside other formats of the same n-grams.

Measures the app's own store; with --text, a store that a separate process builds from that text; with --generated, only
the memory, size and time of a store of so many n-grams, and of look-ups in segments.
"""

from __future__ import annotations

import math
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from core.errors import InputError
from core.ngram import NgramStore
from ngram_builder import merge
from ngram_builder.readers import documents, expand
from research.bench import lmplz, ngram_generated, ngram_peers
from research.bench.child import COMMAND
from research.bench.lookups import of_a_step
from research.bench.ngram_peers import Peer
from research.options import ModelOptions, Rounds, TextOptions
from research.report import Progress, Report, ReportRow, interleaved

BASE = Path(__file__).parents[2] / "assets" / "base.ngram"
DRAFTS, CANDIDATES = 8, 24
MEMORY = "2G"
OURS, AGAIN = "Polydraft", "Polydraft, cached contexts"


@dataclass(frozen=True)
class NgramBenchOptions(ModelOptions, TextOptions):
    repetitions: Rounds = 50
    generated: Annotated[
        str | None,
        typer.Option(help="Only build a store of so many generated n-grams, such as 100M.", metavar="NUMBER"),
    ] = None
    lmplz: Annotated[
        Path | None,
        typer.Option(help="KenLM's program of this name, which is timed on the text, too.", metavar="FILE"),
    ] = None


def measure(options: NgramBenchOptions, progress: Progress) -> Report:
    if options.lmplz and not options.text:
        raise InputError("--lmplz given without a text to count; give it with --text.")
    report = Report("ngram")
    if options.generated:
        progress("building a store of generated n-grams")
        ngram_generated.measure(options.generated, report)
        progress("comparing segments with one trie")
        _compare(options.repetitions, report)
        return report
    with tempfile.TemporaryDirectory(prefix="polydraft-bench-") as name:
        folder = Path(name)
        path, tokens, built = BASE, [], None
        if options.text:
            progress("building the store")
            path = folder / "store.ngram"
            built = build(options, path)
        store = NgramStore.open(path, verify=True)
        if options.text:
            progress("reading the corpus for infini-gram")
            tokens = _corpus(options)
        sizes, n = store.sizes, len(store)
        opening = interleaved({"opening": lambda: NgramStore.open(path)}, 10).median("opening")
        peers = list(_peers(store, folder, tokens, progress))
        progress("looking up")
        times = _times(store, peers, options.repetitions)
        report.rows.append(_row(Peer(OURS, path.stat().st_size, "disk"), n, times[OURS]))
        report.rows.append({"store": AGAIN, "us_per_look_up": times[AGAIN]})
        for peer in peers:
            things = n if peer.of == "n-gram" else int(store.manifest["tokens"])
            report.rows.append(_row(peer, things, times.get(peer.name, math.nan)))
        progress("drafting with it")
        of_a_step(store, options.model, options.text, report)
        exact = " (exact counts)" if not store.manifest["records"]["max_relative_error"] else ""
        report.target("trie, bytes per n-gram", sizes["trie"] / n, "<= 2.1")
        report.target(f"whole store, bytes per n-gram{exact}", path.stat().st_size / n, "<= 3.5")
        report.target("µs per (context, candidate, order), new contexts", times[OURS], "<= 1")
        report.target("opening, ms", opening * 1000, "<= 50")
        if built:
            seconds, processor, peak = built
            report.rows.append({"store": "building it", "cores": os.cpu_count(), "processor_s": processor})
            report.target("build, s", seconds, "<= 90")
            if options.lmplz and options.text:
                progress("estimating with lmplz")
                encoding, estimating = lmplz.measure(options.lmplz, options, options.text, folder)
                report.rows.append({"store": "encoding the text for lmplz", "processor_s": encoding})
                report.rows.append({"store": "lmplz", "processor_s": estimating})
                ratio = processor / (encoding + estimating)
                report.target("processor time of building / of encoding and lmplz", ratio, "<= 1.2")
            report.target("build, peak of resident memory, GiB", peak / (1 << 30), "<= 2")
        return report


def _compare(rounds: int, report: Report) -> None:
    """Compares look-ups in the app's own store, which is one trie, with those in the same n-grams in segments."""
    whole = NgramStore.open(BASE)
    with tempfile.TemporaryDirectory(prefix="polydraft-bench-") as name:
        merge([whole], Path(name, "segments.ngram"), exact=True)
        divided = NgramStore.open(Path(name, "segments.ngram"))
        asked = questions(whole, rounds + 1)
        now = asked[0]

        def before(number: int) -> None:
            nonlocal now
            now = asked[number + 1]
            for store in (whole, divided):
                store.probabilities_batch(*now)  # the pages are in memory
                store.forget_looked_up()

        runs: dict[str, Callable[[], object]] = {
            "one trie": lambda: whole.probabilities_batch(*now),
            "segments": lambda: divided.probabilities_batch(*now),
        }
        timings = interleaved(runs, rounds, before=before)
        report.target(
            "look-ups, segments / one trie", timings.median("segments") / timings.median("one trie"), "<= 1.1"
        )
        sizes = [store.path.stat().st_size for store in (whole, divided)]
        report.target("bytes, segments / one trie", sizes[1] / sizes[0], "<= 1.05")


def build(options: NgramBenchOptions, path: Path) -> tuple[float, float, int]:
    """Builds a store from the text with the command for users. Returns seconds, seconds of processor time, and the peak
    of resident memory in bytes."""
    command = ["ngram", "build", str(options.text), "-o", str(path), "--memory", MEMORY, "--tokenizer", options.model]
    return lmplz.run([sys.executable, "-m", COMMAND, *command], path.with_suffix(".log"))


def questions(store: NgramStore, rounds: int, seed: int = 0) -> list[tuple[list[list[int]], list[list[int]]]]:
    """Returns for each round DRAFTS contexts, and CANDIDATES for each. Half of the contexts are stored ones, with one
    candidate that followed them; in the others the tokens are shuffled. Candidates are sampled by their frequency."""
    rng = random.Random(seed)
    longest = [ids for ids, count, _ in store.ngrams() if len(ids) == store.orders[-1] and count]
    single = [(ids[0], count) for ids, count, _ in store.ngrams() if len(ids) == 1]
    tokens, weights = zip(*single, strict=True)
    pairs = []
    for _ in range(rounds):
        contexts, candidates = [], []
        for draft in range(DRAFTS):
            *context, last = rng.choice(longest)
            if draft % 2:
                rng.shuffle(context)
            contexts.append(context)
            candidates.append([last, *rng.choices(tokens, weights, k=CANDIDATES - 1)])
        pairs.append((contexts, candidates))
    return pairs


def _times(store: NgramStore, peers: list[Peer], rounds: int) -> dict[str, float]:
    """Returns µs per look-up by name. All peers get the same queries in the same round."""
    queries = questions(store, rounds + 1)
    now = queries[0]
    each = DRAFTS * CANDIDATES * len(store.orders)
    counts = {OURS: each, AGAIN: each} | {p.name: each if p.by_order else DRAFTS * CANDIDATES for p in peers}

    def ours() -> None:
        store.probabilities_batch(*now)

    def fresh() -> None:
        store.forget_looked_up()
        ours()

    runs: dict[str, Callable[[], object]] = {OURS: fresh, AGAIN: ours}
    for peer in peers:
        if (lookups := peer.lookups) is not None:
            runs[peer.name] = lambda lookups=lookups: lookups(*now)

    def before(number: int) -> None:
        nonlocal now
        now = queries[number + 1]
        ours()  # caches every context; `fresh` clears the cache

    timings = interleaved(runs, rounds, before=before)
    return {name: timings.median(name) / counts[name] * 1e6 for name in runs}


def _peers(store: NgramStore, folder: Path, tokens: list[np.ndarray], progress: Progress) -> Iterator[Peer]:
    for make in (ngram_peers.dictionaries, ngram_peers.sqlite, ngram_peers.kenlm):
        progress(f"the same in {make.__name__}")
        yield from make(store, folder)
    progress("the same in infini-gram")
    yield from ngram_peers.infini_gram(store, folder, tokens)


def _corpus(options: NgramBenchOptions) -> list[np.ndarray]:
    from core.models import load_model

    tokenizer = load_model(options.model).tokenizer
    texts = (text for file in expand([options.text or ""]) for text in documents(file, lambda _: None))
    return [np.array(tokenizer.encode(text), dtype=np.uint32) for text in texts]


def _row(peer: Peer, things: int, us: float) -> ReportRow:
    if peer.note:
        return {"store": peer.name, "note": peer.note}
    each = peer.bytes / things if peer.bytes > 0 else math.nan  # nan if it is too little to measure
    return {"store": peer.name, "bytes_each": each, "of": f"{peer.of}, {peer.where}", "us_per_look_up": us}
