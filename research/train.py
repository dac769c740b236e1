"""`polydraft train`: `eagle3` trains a draft head for a model, `prose` an adapter on general prose, `average` averages
such adapters."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.cli.shared import Yes, refuse_to_replace
from app.machine.output import plain, say, say_json
from core.errors import InputError
from core.files import replacing

if TYPE_CHECKING:
    from research.training.heads import Unrolled

app = typer.Typer(help="Train draft heads for speculative decoding, and adapters on prose.", no_args_is_help=True)

FITTED = 60  # batches, including replays, on whose pieces the first weights are fitted
MEMORY = 0.4  # the share of free memory for the target's stored outputs


@app.callback()
def _group() -> None:
    """Train draft heads for speculative decoding, and adapters on prose."""


@app.command()
def eagle3(
    text: Annotated[list[str], typer.Argument(help="Files, folders or patterns of training text.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the head: config.json, model.safetensors.")],
    work: Annotated[
        Path | None, typer.Option(help="Folder for texts and state; by default OUT.work. The same call resumes.")
    ] = None,
    model: Annotated[str, typer.Option(help="The target: default, a GGUF file, a folder or a hub id.")] = "default",
    with_prose: Annotated[
        bool, typer.Option("--prose", help="The target with its adapter to prose: yours, or the one of the app.")
    ] = False,
    texts: Annotated[int, typer.Option(min=8, help="Pieces of training text.")] = 8000,
    own: Annotated[float, typer.Option(min=0, max=1, help="Share of them that the model generates.")] = 0.25,
    answers: Annotated[
        int, typer.Option(min=0, help="Further pieces: the model's answers to instructions that come with the app.")
    ] = 0,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of such a piece before the generated ones.")] = 32,
    length: Annotated[int, typer.Option(min=64, max=4096, help="Tokens of a piece.")] = 256,
    vocabulary: Annotated[
        int, typer.Option(min=16, help="Size of the head's vocabulary: the most frequent tokens.")
    ] = 8000,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the optimiser.")] = 4000,
    batch: Annotated[int, typer.Option(min=1, help="Pieces per step.")] = 8,
    unroll: Annotated[int, typer.Option(min=1, help="How often the head's own output is fed back.")] = 4,
    replays: Annotated[int, typer.Option(min=0, help="Steps on earlier pieces for each step on new ones.")] = 2,
    share: Annotated[
        float, typer.Option(min=0.05, max=1, help="Share of a piece's positions that are unrolled.")
    ] = 0.5,
    rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 3e-4,
    begin_with: Annotated[
        Path | None, typer.Option(help="A head for the same target to train further, instead of a fitted one.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="End after this many minutes of training in total; 0 is no limit.")
    ] = 0,
    held_out: Annotated[str | None, typer.Option(help="Text on which to evaluate the head at the end.")] = None,
    yes: Yes = False,
) -> None:
    """Train an EAGLE-3 head. To resume after an interruption or the end of --minutes, run the same command again.

    Example: [bold]polydraft train eagle3 corpus/train -o assets/eagle3 --minutes 60 --held-out corpus/heldout[/]
    """
    import numpy as np
    import torch

    from core.models.llama import why_not
    from core.models.load import load_module
    from core.models.memory import free_bytes
    from core.models.prose import prose_of
    from core.speculative.eagle3 import Eagle3Head
    from research.texts import read
    from research.training import teacher as teaching
    from research.training.first_weights import feature_scale, fit_first_weights
    from research.training.heads import Recipe, batches, draft_vocabulary, new_head, train, unrolled
    from research.training.instructions import instructions
    from training.adapter import merge

    recipe = Recipe(steps, batch, unroll, share, replays, rate, warm_up=min(20, steps))
    work = work or out.with_name(out.name + ".work")
    refuse_to_replace(out, yes, lambda _: work.exists())  # a training that goes on
    console = Console(stderr=True)
    head = None if begin_with is None else Eagle3Head.load(begin_with)
    written = work / "windows.npy"
    documents = [] if written.is_file() else [document for _, of_file in read(text) for document in of_file]
    console.print("Loading the model …")
    target = load_module(model)
    module = target.layers.module
    if with_prose:
        if (adapter := prose_of(target)) is None:
            raise InputError(f"There is no adapter to prose for {target.name}; make one with `polydraft train prose`.")
        merge(target, adapter)
    quick = not why_not(module)
    on_gpu = module.device.type != "cpu"
    if head is not None:
        head.check(target.vocab_size, target.dim)
    piece = 8 * length * target.dim  # bytes of its stored outputs
    remembered = min(texts + answers, int(MEMORY * free_bytes(torch.device("cpu")) / piece))
    teacher = teaching.CompiledTeacher(module, remembered=remembered) if quick else teaching.ModuleTeacher(module)
    group = 8 * teaching.BATCH if on_gpu else teaching.BATCH
    work.mkdir(parents=True, exist_ok=True)
    if not written.is_file():
        pieces = teaching.windows(documents, target.tokenizer.encode, length, texts)
        with replacing(written) as file:
            np.save(file, pieces)
    windows = np.load(written)
    if windows.shape[1] != length:
        raise InputError(f"{written} has pieces of {windows.shape[1]} tokens, --length is {length}; remove {work}.")
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        generated = round(own * len(windows))
        if generated:
            task = bar.add_task("text generated by the model", total=generated)
            own_windows = teaching.own_texts(
                teacher, windows[:generated], prompt, work, group, lambda n: bar.update(task, completed=n)
            )
            bar.update(task, completed=generated)
            windows = np.concatenate((own_windows, windows[generated:]))
        if answers:
            task = bar.add_task("answers generated by the model", total=answers)
            prompts = [target.tokenizer.start_ids + target.tokenizer.encode(text) for text in instructions(answers)]
            fitting = [ids[-length // 2 :] for ids in prompts]
            answer_windows = teaching.answers(
                teacher, fitting, length, work, group, lambda n: bar.update(task, completed=n)
            )
            bar.update(task, completed=answers)
            windows = np.concatenate((windows, answer_windows))
        torch.manual_seed(recipe.seed)
        if head is None:
            known = draft_vocabulary(windows, target.vocab_size, min(vocabulary, target.vocab_size))
            head = new_head(teacher, known)
        scale = None
        if (quick or (on_gpu and teacher.norm is not None)) and not (work / "state.pt").is_file():
            # On the pieces of the first batches, whose features compiled code stores.
            first = np.concatenate([b for b, _ in zip(batches(windows, recipe, 0), range(FITTED), strict=False)])
            first = torch.from_numpy(np.unique(first, axis=0))
            task = bar.add_task("fitting the first weights", total=len(first))
            parts = []
            for some in first.split(8):
                parts.append(teacher.hidden(some.to(module.device)))
                bar.advance(task, len(some))
            features, last = (torch.cat(each).cpu().float() for each in zip(*parts, strict=True))
            if begin_with is None:
                scale = fit_first_weights(head, features, last, teacher.embeddings[first].cpu())
            else:
                scale = feature_scale(features)
        task = bar.add_task("training", total=recipe.steps)

        def shown(step: int, loss: float, overlaps: list[float]) -> None:
            depths = " ".join(f"{value:.2f}" for value in overlaps)
            bar.update(task, completed=step, description=f"loss {loss:.3f}, accepted {depths}")

        rounded = quick or on_gpu
        done = train(head, teacher, windows, recipe, work, shown, minutes or math.inf, scale=scale, rounded=rounded)
    head.save(out)
    say(f"{out}: step {done} of {recipe.steps}; the loss curve is {work / 'loss.jsonl'}.")
    if held_out:
        documents = [document for _, of_file in read([held_out]) for document in of_file]
        test = teaching.windows(documents, target.tokenizer.encode, length, 64, seed=1)
        with torch.no_grad():
            ids = torch.from_numpy(test.astype(np.int64)).to(module.device)
            parts = [unrolled(head, teacher, some, 6) for some in ids.tensor_split(8)]
        for line in _table(parts):
            say(line)


@app.command()
def prose(
    text: Annotated[
        list[Path],
        typer.Option(
            help="A file or folder of text to learn; may be given several times. Its subfolders, or its files whose "
            'names agree up to the first "-", are the kinds of text, and every kind is trained equally much.'
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the adapter, in the layout of `peft`.")],
    work: Annotated[
        Path | None, typer.Option(help="Folder for pieces and state; by default OUT.work. The same call resumes.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model: default, a GGUF file, a folder or a hub id.")] = "default",
    without: Annotated[
        Path | None,
        typer.Option(
            help='A file of documents to set aside, as research/training/set_aside.json: {"names": […]}, each the name '
            "of a document or its beginning: an author, a book, a file."
        ),
    ] = None,
    held_out: Annotated[
        list[Path] | None,
        typer.Option(help="Text on which to evaluate; may be given several times. By default a part of --text."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to train.")] = 250_000,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many minutes; the same call resumes. By default never.")
    ] = None,
    memory: Annotated[float, typer.Option(min=0.5, help="Use at most this many GB of memory.")] = 4.0,
    rank: Annotated[int, typer.Option(min=1, max=256, help="Rank of the adapter.")] = 16,
    alpha: Annotated[float, typer.Option(min=0.1, help="The change is alpha / rank times the matrices.")] = 16.0,
    places: Annotated[
        str | None, typer.Option(help="The adapted projections, with commas; by default all.", metavar="NAME,NAME,…")
    ] = None,
    rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 1e-3,
    length: Annotated[int, typer.Option(min=64, max=4096, help="Tokens of a piece.")] = 512,
    batch: Annotated[int, typer.Option(min=1, help="Pieces per step.")] = 4,
    beginnings: Annotated[
        float, typer.Option(min=0, max=1, help="Share of pieces that begin where a document begins.")
    ] = 0.25,
    half_typed: Annotated[float, typer.Option(min=0, max=1, help="Share of words that are half-typed.")] = 0.05,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            help="So many pieces of a kind for each one of the others; may be given several times.", metavar="KIND=N"
        ),
    ] = None,
    answers: Annotated[
        int,
        typer.Option(
            min=0, help='Add a kind, "answers": so many answers of the model to instructions that come with the app.'
        ),
    ] = 0,
    messages: Annotated[
        int,
        typer.Option(
            min=0, help='Add a kind, "messages": so many messages that the model writes after beginnings of ours.'
        ),
    ] = 0,
    read_only: Annotated[
        list[str] | None,
        typer.Option(
            help="Read so many tokens at the beginning of a kind's pieces without predicting them, so that a narrow "
            "kind is learned only where the text shows that it is of this kind; may be given several times.",
            metavar="KIND=N",
        ),
    ] = None,
    begin_with: Annotated[
        Path | None, typer.Option(help="An adapter for the same model to train further, of the same rank.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the pieces, their order and the first matrices.")] = 0,
    yes: Yes = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object.")] = False,
) -> None:
    """Train an adapter on general prose. To resume after an interruption or the end of --minutes, run the same command
    again; it gives the same adapter as one call without interruption.

    Example: [bold]polydraft train prose --text corpus/train --text corpus/more --held-out corpus/heldout -o prose[/]
    """
    from core.models import adapter as adapters
    from core.models.adapter import PROJECTIONS
    from core.models.load import load_module
    from core.ngram.base import base_store
    from research.texts import NamedText, named
    from research.training import prose as training
    from training.adapter import AdapterRecipe

    names = tuple(PROJECTIONS) if places is None else tuple(part.strip() for part in places.split(","))
    adapter = AdapterRecipe(rank, alpha, names, rate, length, batch, seed=seed)
    weights, unpredicted = _numbers("--weight", weight or []), _numbers("--read-only", read_only or [])
    recipe = training.ProseRecipe(tokens, beginnings, half_typed, adapter, weights, answers, messages, unpredicted)
    set_aside = [] if without is None else training.names_in(without)
    console = Console(stderr=True)

    def texts() -> tuple[list[NamedText], list[NamedText]]:
        remaining, counts = training.without(named(text), set_aside)
        for name, count in counts.items():
            console.print(plain(f"Set aside: {name}, {count:,} documents"))
        return (remaining, named(held_out)) if held_out else training.divided(remaining)

    first = None if begin_with is None else adapters.load(begin_with)
    console.print("Loading the model …")
    loaded = load_module(model)
    base, _ = base_store(loaded.tokenizer.fingerprint)
    about = {
        "text": list(map(str, text)),
        "without": set_aside,
        "held_out": list(map(str, held_out)) if held_out else None,
    }
    work = work or out.with_name(out.name + ".work")
    refuse_to_replace(out, yes, lambda folder: work.exists() or _has_provenance(folder))
    outcome: training.ProseOutcome | None = None
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}")
    with (
        Progress(*columns, console=console) as bar,
        closing(training.train(loaded, texts, about, recipe, out, work, base, first, minutes, memory)) as steps,
    ):
        task = bar.add_task("", total=1.0, left="")
        for stage in steps:
            if isinstance(stage, training.ProseOutcome):
                outcome = stage
                continue
            if stage.held_out is not None:
                kinds = ", ".join(f"{kind} {value:.3f}" for kind, value in stage.held_out.items())
                bar.console.print(plain(f"{stage.share:4.0%}  ln p on held-out text: {kinds}"))
            left = "" if stage.left is None else f"{stage.left / 60:.0f} min left"
            bar.update(task, description=stage.description, completed=stage.share, left=left)
    assert outcome is not None
    if as_json:
        row = {"share": round(outcome.share, 4), "seconds": round(outcome.seconds, 1), "rows": outcome.rows}
        say_json({"name": "train prose", **row})
    elif outcome.share < 1:
        say(f"{outcome.share:.0%} of the training is done; the same command goes on from there.")
    else:
        for line in _prose_table(outcome.rows):
            say(line)
        say(f"{out}: the adapter, and {training.PROVENANCE}; the curve is {work / training.CURVE}.")


@app.command()
def average(
    adapters: Annotated[
        list[str],
        typer.Argument(
            help="Folders of adapters for one model, of the same rank, alpha and projections; each may have a weight.",
            metavar="FOLDER[=N]...",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the mean, in the layout of `peft`.")],
    held_out: Annotated[list[Path], typer.Option(help="Text on which to evaluate it; may be given several times.")],
    model: Annotated[str, typer.Option(help="The model: default, a GGUF file, a folder or a hub id.")] = "default",
    yes: Yes = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object.")] = False,
) -> None:
    """Average adapters on prose that were trained with one --seed. The mean of several recipes can predict more kinds
    of text than each of them, and costs a pass no more than one.

    Example: [bold]polydraft train average with-dialogue=2 without --held-out corpus/heldout -o prose[/]
    """
    from core.models.adapter import load
    from core.models.load import load_module
    from core.ngram.base import base_store
    from research.texts import named
    from research.training import prose as training

    refuse_to_replace(out, yes, _has_provenance)
    parts = [(load(folder), weight) for folder, weight in map(_weighted, adapters)]
    texts = named(held_out)
    Console(stderr=True).print("Loading the model …")
    loaded = load_module(model)
    base, _ = base_store(loaded.tokenizer.fingerprint)
    rows = training.average(loaded, parts, (held_out, texts), out, base)
    if as_json:
        say_json({"name": "train average", "rows": rows})
    else:
        for line in _prose_table(rows):
            say(line)
        say(f"{out}: the adapter, and {training.PROVENANCE}.")


def _has_provenance(folder: Path) -> bool:
    """Whether a folder has an adapter that was trained here."""
    from research.training.prose import PROVENANCE

    return (folder / PROVENANCE).is_file()


def _weighted(given: str) -> tuple[Path, int]:
    """Returns the folder and weight of FOLDER=N, or of FOLDER with weight 1."""
    folder, number = _number_of(given)
    return (Path(given), 1) if number is None else (Path(folder), number)


def _numbers(flag: str, given: list[str]) -> dict[str, int]:
    """Returns N by KIND of a flag's values KIND=N. Raises InputError."""
    numbers: dict[str, int] = {}
    for each in given:
        kind, number = _number_of(each)
        if number is None:
            raise InputError(f"{flag} {each} given; a kind of text and a whole number expected, such as book=2.")
        numbers[kind] = number
    return numbers


def _number_of(given: str) -> tuple[str, int | None]:
    """Returns NAME and N of NAME=N; no number of anything else."""
    name, _, number = given.rpartition("=")
    return (name, int(number)) if name and number.isascii() and number.isdigit() else (given, None)


def _prose_table(rows: list[dict[str, Any]]) -> list[str]:
    """ln p on held-out text by kind."""
    mixed = "with_base_store_ln_p" in rows[0]
    lines = [
        "                    the model and adapter alone" + mixed * "        with the base store",
        "kind        tokens" + ((1 + mixed) * "    ln p  adapted   gain ± s.e.  ").rstrip(),
    ]
    for row in rows:
        line = f"{row['kind']:10}  {row['tokens']:6}"
        for name in ("", "with_base_store_") if mixed else ("",):
            low, high, gain, error = (row[name + figure] for figure in ("ln_p", "adapted", "gain", "error"))
            line += f"  {low:.3f}   {high:.3f}  {gain:+.3f} ± {error:.3f}  "
        lines.append(line.rstrip())
    return lines


def _table(parts: list[Unrolled]) -> list[str]:
    """Acceptance per depth on text that was not used for training."""
    depths = range(len(parts[0].overlaps))
    rows = ["depth  accepted by sampling  most probable token the same"]
    for j in depths:
        overlap = sum(part.overlaps[j] for part in parts) / len(parts)
        matched = sum(part.matches[j] for part in parts) / len(parts)
        rows.append(f"{j + 1:5}  {overlap:20.3f}  {matched:24.3f}")
    return rows
