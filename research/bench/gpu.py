"""`bench gpu`: times of a step on a CUDA device beside the bound by its bandwidth, and of drafts beside Hugging Face's.

Models: random weights in the shapes of Llama-2-7B and Llama-3.1-8B (bfloat16, without a download), then the default
model. A step uses the static cache: captured, and captured after its layers were compiled. Its floor is the bytes of
weights divided by the copy bandwidth measured in the same run. Peers are `generate` of transformers on the same
weights: k sampled sequences in one batch, k in a row, and beam search. The verification of a tree of 16 tokens is
compared with a step. The tree of an EAGLE-3 head, captured on the device, is compared with the tree of the head's
engine for the CPU (random weights; for the default model its own head). With --tiny the measurement runs in a tiny
shape, also on a CPU; its figures only show that the measurement works.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor
from torch._inductor import config as inductor

from core.drafting.candidates import top_indices
from core.errors import BackendUnavailable
from core.models import hf
from core.models.base import Row
from core.models.located import DEFAULT_NAME, default_model_path
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from core.ngram import NgramStore
from core.ngram.base import base_store
from core.ngram.interpolation import Geometric
from core.samplers import MinP, Rule, TopNSigma, TopP, TopW
from core.speculative.drafters import Moment
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError
from core.superposed import mixed_embedding, superpose_batch
from research import texts as text
from research.bench.lookups import Timed
from research.bench.shapes import SHAPES, TINY, bytes_read, random_model
from research.fused import FusedModel
from research.options import ShapeOptions, StoreOptions, TextOptions, chosen
from research.report import Progress, Report, ReportRow, interleaved, number_in, percentile, text_in

KS = (1, 3, 8)
PREFIX, LENGTH = 15, 10  # tokens, as in the paper's figure 6
USERS = (1, 2, 4, 8, 16, 32, 64)
STEPS, ROUNDS = 50, 7
TREE = 16  # proposals, verified below the text's last token
DRAFTED = 32_000  # tokens of a random head's draft vocabulary, as published heads have
NEVER = frozenset[int]()
THE_PAPERS = {"distinct": False, "exact_steps": 0, "stop_ids": NEVER}
HEADLINE = {3: 2.44, 8: 3.54}  # the paper's speed-up over k runs in a row
NO_GPU = (
    "There is no CUDA device here, so nothing was measured; run `polydraft bench cpu-torch` for this processor, or "
    "`polydraft bench gpu --tiny` to see that the measurement works."
)


@dataclass(frozen=True)
class GpuOptions(ShapeOptions, StoreOptions, TextOptions):
    repetitions: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds; by default 50 of a step, 7 of drafts and rules, 21 of many people."),
    ] = None


def measure(options: GpuOptions, progress: Progress) -> Report:
    """Runs the measurement. Raises BackendUnavailable without a CUDA device, unless `options.tiny`; InputError for a
    shape that is not known."""
    shapes = chosen("--shapes", options.shapes, TINY if options.tiny else SHAPES | {DEFAULT_NAME: None})
    if not torch.cuda.is_available() and not options.tiny:
        raise BackendUnavailable(NO_GPU)
    inductor.compile_threads = 1  # its other processes would compete with the measured steps
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    report = Report("gpu")
    bandwidth = _bandwidth(device, 2**26 if options.tiny else 2**30)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    report.rows.append({"model": "", "what": f"copy bandwidth of {name}, GB/s", "value": bandwidth / 1e9})
    rng = np.random.default_rng(0)
    for shape, config in shapes.items():
        if config is None:
            _default_model(report, bandwidth, options, progress)
            continue
        progress(f"{shape}: making random weights")
        try:
            model = random_model(shape, config, device, dtype)
        except torch.OutOfMemoryError:
            report.rows.append({"model": shape, "what": "does not fit the memory of this device"})
            continue
        prefixes = [rng.integers(0, model.vocab_size, PREFIX).tolist() for _ in range(ROUNDS + 1)]
        _one_model(report, model, bandwidth, prefixes, None, options, progress)
        del model
        torch.cuda.empty_cache()
    return report


def _default_model(report: Report, bandwidth: float, options: GpuOptions, progress: Progress) -> None:
    progress("loading the default model")
    model = hf.load(default_model_path(), DEFAULT_NAME, plain=True)
    prefixes = text.prefixes(model.tokenizer, text.load(options.text), ROUNDS + 1, PREFIX)
    store, missing = base_store(model.tokenizer.fingerprint, options.store)
    if store is None:
        report.rows.append({"model": DEFAULT_NAME, "what": f"n-grams not measured: {missing or 'no base store'}"})
    _one_model(report, model, bandwidth, prefixes, store, options, progress)


def _one_model(
    report: Report,
    model: TorchModel,
    bandwidth: float,
    prefixes: list[list[int]],
    store: NgramStore | None,
    options: GpuOptions,
    progress: Progress,
) -> None:
    floor = bytes_read(model.layers.module) / bandwidth
    _row(report, model, "floor of a step: weights / bandwidth, ms", floor * 1000)
    best: StaticModel | None = None
    fastest, steps = float("inf"), dict[int, float]()
    # On a CPU, compilation would take longer than all other measurements, and save no time.
    for compiler in (None, "inductor") if model.device.startswith("cuda") else (None,):
        kind = "captured" if compiler is None else "compiled and captured"
        progress(f"{model.name}: steps, {kind}")
        try:
            size: dict[str, Any] = {"lines": 1, "capacity": 256}
            static = StaticModel(model, **size) if compiler is None else FusedModel(model, compiler, **size)
        except BackendUnavailable as error:
            _row(report, model, f"step, {kind}: {error}", None)
            continue
        times = _steps(static, prefixes[0], options.repetitions or STEPS)
        for k, seconds in times.items():
            _row(report, model, f"step, {kind}, k={k}, ms", seconds * 1000, of_floor=seconds / floor)
        if times[1] < fastest:
            best, fastest, steps = static, times[1], times
    if best is None:
        return
    report.target(f"{model.name}: step / bandwidth floor, k=1", fastest / floor, "<= 1.15")
    report.target(f"{model.name}: superposed step, k=8 / k=1", steps[8] / steps[1], "<= 1.05")
    progress(f"{model.name}: trees of tokens")
    _verification(report, model, best, prefixes[0], options)
    _eagle(report, model, best, prefixes[0], options)
    progress(f"{model.name}: drafts")
    _drafts(report, model, best, prefixes, options)
    if store is not None:
        progress(f"{model.name}: n-grams")
        _ngrams(report, model, best, prefixes, store)
    else:
        _samplers(report, model, options, progress)
    progress(f"{model.name}: many people")
    _users(report, model, options)


def _steps(static: StaticModel, prefix: list[int], times: int) -> dict[int, float]:
    """Returns the median seconds per superposed step for each k, including the synchronisation."""
    sequence = static.open()
    sequence.feed(prefix)
    runs = {}
    for k in KS:

        def run(k: int = k) -> None:
            mixed = mixed_embedding(static, prefix[:k], np.full(k, 1 / k))
            top_indices(static.forward([Row(sequence, mixed)])[0].numpy(), 3 * k)
            sequence.rewind(len(prefix))

        runs[str(k)] = run
    timings = interleaved(runs, times)
    sequence.close()
    return {k: timings.median(str(k)) for k in KS}


def _verification(
    report: Report, model: TorchModel, static: StaticModel, prefix: list[int], options: GpuOptions
) -> None:
    """Measures feeding and dropping a binary tree below one token, and feeding one token, including the
    synchronisation."""
    sequence = static.open()
    sequence.feed(prefix)
    ids = [prefix[i % PREFIX] for i in range(1 + TREE)]
    tree = Row(sequence, ids, parents=[-1, *((i - 1) // 2 for i in range(1, 1 + TREE))])

    def verify() -> None:
        static.forward([tree])
        sequence.keep([])

    def step() -> None:
        static.forward([Row(sequence, ids[:1])])
        sequence.rewind(len(prefix))

    timings = interleaved({"verify": verify, "step": step}, options.repetitions or STEPS)
    sequence.close()
    more = {"of_step": timings.ratio("verify", "step")}
    _row(report, model, f"verification of 1 + {TREE} tokens, ms", timings.median("verify") * 1000, **more)
    _row(report, model, "step with all logits, ms", timings.median("step") * 1000)


def _eagle(report: Report, model: TorchModel, static: StaticModel, prefix: list[int], options: GpuOptions) -> None:
    """Measures a tree of the drafter's default size after three new positions, as after a cycle with two accepted
    tokens."""
    try:
        head = Eagle3Head.load(DEFAULT_HEAD) if model.name == DEFAULT_NAME else _random_head(model)
        runs: dict[str, Callable[[], object]] = {}
        for engine, target in (("captured", static), ("on the CPU", model)):
            drafter = Eagle3Drafter(head, target)
            sequence = target.open()
            sequence.feed(prefix[:-1])
            assert sequence.features is not None
            runs[engine] = partial(_trees, drafter, prefix, sequence.features.clone())
            sequence.close()
        timings = interleaved(runs, options.repetitions or STEPS, clock=lambda: _now(model.layers.device))
    except (HeadError, torch.OutOfMemoryError) as error:
        _row(report, model, f"EAGLE-3 not measured: {error}", None)
        return
    finally:
        static.watch(())
        model.watch(())
    for engine in runs:
        more = {"of_captured": timings.ratio(engine, "captured")}
        _row(report, model, f"EAGLE-3, a tree, {engine}, ms", timings.median(engine) * 1000 / CALLS, **more)


def _trees(drafter: Eagle3Drafter, text: list[int], features: Tensor) -> None:
    """Grows CALLS trees, each after a text that differs from the previous one in its last three positions."""
    for call in range(CALLS):
        other = [*text[:-3], *(text[call % 2 : call % 2 + 3])]
        drafter.draft(Moment(other, features), drafter.depth)


def _random_head(model: TorchModel) -> Eagle3Head:
    """Returns a head of one layer in the shape of the model's layers."""
    config = model.layers.module.config
    torch.manual_seed(0)
    return Eagle3Head(
        HeadConfig(
            hidden_size=model.dim,
            intermediate_size=config.intermediate_size,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            vocab_size=model.vocab_size,
            draft_vocab_size=min(DRAFTED, model.vocab_size),
        )
    ).eval()


def _drafts(
    report: Report, model: TorchModel, static: StaticModel, prefixes: list[list[int]], options: GpuOptions
) -> None:
    """Measures 10 tokens after 15, including feeding the 15."""
    prefix = prefixes[0]

    def before(number: int) -> None:
        nonlocal prefix
        prefix = prefixes[number % len(prefixes)]

    runs: dict[str, Callable[[], object]] = {}
    for k in KS:
        runs[f"superposed k={k}"] = lambda k=k: list(superpose_batch(static, [prefix], k, LENGTH, **THE_PAPERS))
        runs[f"generate, sampled in one batch k={k}"] = lambda k=k: _generate(
            model, prefix, do_sample=True, num_return_sequences=k
        )
        if k > 1:
            runs[f"generate, sampled in a row k={k}"] = lambda k=k: [
                _generate(model, prefix, do_sample=True) for _ in range(k)
            ]
            runs[f"generate, beam search k={k}"] = lambda k=k: _generate(
                model, prefix, num_beams=k, num_return_sequences=k
            )
    timings = interleaved(runs, options.repetitions or ROUNDS, before, clock=lambda: _now(model.layers.device))
    memory = {name: _memory(model, run) for name, run in runs.items()}
    for name in runs:
        k = name.rsplit("=", 1)[1]
        more = {"of_superposed": timings.ratio(name, f"superposed k={k}"), "MB": memory[name]}
        _row(report, model, f"{LENGTH} tokens, {name}, ms", timings.median(name) * 1000, **more)
    for k, least in HEADLINE.items():
        ratio = timings.ratio(f"generate, sampled in a row k={k}", f"superposed k={k}")
        report.target(f"{model.name}: {k} runs in a row / superposed", ratio, f">= {least}")


def _ngrams(
    report: Report, model: TorchModel, static: StaticModel, prefixes: list[list[int]], store: NgramStore
) -> None:
    for k in KS:
        rule = Timed(Geometric(store))
        shares = []
        for prefix in prefixes:
            rule.seconds, start = 0.0, _now(model.layers.device)
            list(superpose_batch(static, [prefix], k, LENGTH, ngrams=rule, **THE_PAPERS))
            shares.append(rule.seconds / (_now(model.layers.device) - start))
        _row(report, model, f"share of n-gram look-up, k={k}", median(shares))
        if k == max(KS):
            report.target(f"{model.name}: share of n-gram look-up, k={k}", median(shares), "<= 0.05")


def _users(report: Report, model: TorchModel, options: GpuOptions) -> None:
    """Measures B users who press a key at the same time, in texts of different lengths, captured. Each waits for the
    whole batch."""
    rng = np.random.default_rng(1)
    for users in USERS[:3] if options.tiny else USERS:
        prefixes = [rng.integers(0, model.vocab_size, PREFIX + 7 * i % 64).tolist() for i in range(users)]
        waits: list[float] = []
        try:
            static = StaticModel(model, lines=users, capacity=128, check=False)
            held = [static.open() for _ in prefixes]
            for number in range(-2, options.repetitions or 3 * ROUNDS):
                for sequence, prefix in zip(held, prefixes, strict=True):  # the last key adds one token
                    if number == -2:
                        static.forward([Row(sequence, prefix[:-1])])
                    sequence.rewind(len(prefix) - 1)
                start = _now(model.layers.device)
                list(superpose_batch(static, prefixes, 3, LENGTH, sequences=list(held), **THE_PAPERS))
                if number >= 0:
                    waits.append(_now(model.layers.device) - start)
        except torch.OutOfMemoryError:
            _row(report, model, f"{users} people: the memory does not suffice", None)
            break
        more = {"p95_ms": percentile(waits, 95) * 1000, "MB": static.bytes_per_line / 1e6}
        _row(report, model, f"{users} people at once, k=3, sets of drafts per s", users / median(waits), **more)
        del static, held
        torch.cuda.empty_cache()


def _samplers(report: Report, model: TorchModel, options: GpuOptions, progress: Progress) -> None:
    """Measures each rule on (1, V) logits on their device, and whether it waits for the device."""
    progress(f"{model.name}: samplers")
    device, vocabulary = model.layers.device, model.vocab_size
    logits = torch.randn(1, vocabulary, device=device, generator=torch.Generator(device).manual_seed(0)) * 2.5
    ids = torch.zeros(1, 1, dtype=torch.int64, device=device)
    table = model.embeddings.to(device=device, dtype=model.layers.dtype)
    rules = {"top-p": TopP(0.9), "Top-W": TopW(table), "min-p": MinP(0.1), "top-nσ": TopNSigma(1.0)}
    timings = interleaved(
        {name: lambda rule=rule: _many(rule, ids, logits) for name, rule in rules.items()},
        options.repetitions or ROUNDS,
        clock=lambda: _now(model.layers.device),
    )
    for name, rule in rules.items():
        waits = _synchronises(rule, ids, logits)
        _row(report, model, f"{name}, V={vocabulary}, ms", timings.median(name) * 1000 / CALLS, synchronises=waits)
        if waits is not None and not rule.on_cpu:
            report.target(f"{model.name}: {name} synchronises", float(waits), "<= 0")
    of_model = [row for row in report.rows if row["model"] == model.name]
    steps = [number_in(row, "value") for row in of_model if ", k=1, ms" in text_in(row, "what")]
    if steps:
        difference = (timings.median("Top-W") - timings.median("top-p")) * 1000 / CALLS
        report.target(f"{model.name}: Top-W's overhead per token against top-p", difference / min(steps), "<= 0.01")


CALLS = 10


def _many(rule: Rule, ids: Tensor, logits: Tensor) -> None:
    for _ in range(CALLS):
        rule(ids, logits)


def _synchronises(rule: Rule, ids: Tensor, logits: Tensor) -> bool | None:
    """Whether a call waits for the device; None without a device."""
    if logits.device.type != "cuda":
        return None
    torch.cuda.set_sync_debug_mode("error")
    try:
        rule(ids, logits)
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def _generate(model: TorchModel, prefix: list[int], **how: Any) -> Tensor:
    given = torch.tensor([prefix], device=model.layers.device)
    generate: Any = model.layers.module
    with torch.inference_mode():
        return generate.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=LENGTH,
            min_new_tokens=LENGTH,
            pad_token_id=0,
            **how,
        )


def _bandwidth(device: torch.device, size: int) -> float:
    """Returns the bytes that a copy reads and writes per second: the best of ten."""
    source = torch.ones(size, dtype=torch.uint8, device=device)  # zeros might be mapped to a single page
    target = torch.empty_like(source)
    timings = interleaved({"copy": lambda: target.copy_(source)}, 10, clock=lambda: _now(device))
    return 2 * size / min(timings.seconds["copy"])


def _memory(model: TorchModel, run: Callable[[], object]) -> float | None:
    """Returns the peak of memory in MB during a run, minus the memory before it; None if torch does not record it."""
    if model.layers.device.type != "cuda":
        return None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def _now(device: torch.device) -> float:
    """Returns the time after the device has computed all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _row(report: Report, model: TorchModel, what: str, value: float | None, **more: Any) -> None:
    row: ReportRow = {"model": model.name, "what": what}
    if value is not None:
        row["value"] = value
    report.rows.append(row | {key: x for key, x in more.items() if x is not None})
