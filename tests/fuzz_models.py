"""Model files that lie, by the thousand, against the loader and compiled code under AddressSanitizer and UBSan.

`make fuzz` runs 20,000 cases; `make fuzz ARGS="--first 7 --cases 1"` runs case 7 again. Four cases of five are files
(`tiny_gguf.mutated`): each must be refused in one sentence, or be a model that computes. The fifth hands compiled code
sizes that do not fit, past the checks of the file: each must be refused before anything is touched, or computed.

Child processes run the cases, one after the other, so that a crash or a hang is a finding and ends nothing but them.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.models import LanguageModel

CASES = 20_000
SECONDS, WAITING = 60, 900  # that one case may take: of processor time, and in all, because other programs compute too
FAST, QUICKLY_COMPILED = "-O1", "-O0"  # thousands of cases; a few
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
REPORTED = 500  # cases between two lines about how far it is
ASAN = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:max_allocation_size_mb=4096:handle_segv=1"


log = logging.getLogger(__name__)


@dataclass
class Found:
    """Verdicts of all cases, and the output of each case that went wrong."""

    verdicts: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        return self.verdicts.total()

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        lines = [f"{self.cases} cases in {self.seconds:.0f} s: {counts}; {len(self.wrong)} went wrong."]
        return "\n".join(lines + [f"--- case {seed}\n{said}" for seed, said in sorted(self.wrong.items())])


def fuzz(first: int = 0, cases: int = CASES, workers: int = 1, optimisation: str = FAST) -> Found:
    """Run cases `first` …"""
    found, begun = Found(), time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        shares = (range(first + n, first + cases, workers) for n in range(workers))
        list(pool.map(lambda seeds: _run(seeds, found, optimisation), shares))
    found.seconds = time.monotonic() - begun
    return found


def _run(seeds: range, found: Found, optimisation: str) -> None:
    """Run these cases in a child, and the later ones in a new one where a case ended it."""
    # The exceptions of C++ are found by AddressSanitizer only where their library is there before it.
    preloaded = " ".join(
        subprocess.check_output([os.environ.get("CXX", "c++"), f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so.6")
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "LD_PRELOAD": preloaded, "ASAN_OPTIONS": ASAN}
    env |= {"UBSAN_OPTIONS": "print_stacktrace=1", "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    while seeds:
        asked = f"--child={optimisation},{seeds.start},{seeds.stop},{seeds.step}"
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                [sys.executable, __file__, asked], stdout=subprocess.PIPE, stderr=errors, text=True, env=env
            ) as child,
        ):
            assert child.stdout is not None
            for line in child.stdout:
                verdict, _, rest = line.rstrip("\n").partition(" ")
                found.verdicts[verdict] += 1
                if verdict == "raised":
                    _report(found, seeds[0], rest.replace("\\n", "\n"))
                if found.cases % REPORTED == 0:
                    log.info("%d cases: %s", found.cases, dict(found.verdicts))
                seeds = seeds[1:]
            child.wait()
            if seeds:
                errors.seek(0)
                words = errors.read().decode("utf-8", "replace")
                found.verdicts["crash or hang"] += 1
                _report(found, seeds[0], f"exit code {child.returncode} (-24: it hung)\n{words[:4000]}")
                seeds = seeds[1:]


def _report(found: Found, seed: int, said: str) -> None:
    found.wrong[seed] = said
    log.info("case %d went wrong: %s", seed, said.strip().splitlines()[-1])


# --- in the child


def serve(optimisation: str, seeds: range) -> None:
    """Write a line for each case."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM  # noqa: F401 - not in a case's time

    from core.models import native

    native.SOURCE = replace(native.SOURCE, options=(*native.SOURCE.options, optimisation, *SANITIZED))
    native.library()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.gguf")
        for seed in seeds:
            most = int(time.process_time()) + SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            faulthandler.dump_traceback_later(WAITING, exit=True)
            try:
                verdict = of_sizes(seed) if seed % 5 == 4 else of_a_file(seed, path)
            except Exception:  # noqa: BLE001 - whatever it is, this case went wrong, and the next one follows
                verdict = "raised " + traceback.format_exc().replace("\n", "\\n")
            sys.stdout.write(f"{verdict}\n")
            sys.stdout.flush()


def of_a_file(seed: int, path: Path) -> str:
    from tiny_gguf import mutated

    from core.errors import InputError, NotFinite, PolydraftError
    from core.models import load_model

    path.write_bytes(mutated(seed))
    try:
        try:
            model = load_model(str(path), "torch", "int8" if seed % 2 else "file")
        except InputError:  # no weights in a few bits
            model = load_model(str(path), "torch")
    except PolydraftError as error:
        assert "\n" not in str(error), "more than a sentence"
        return "refused"
    try:
        return _computed(model, seed)
    except NotFinite as error:  # sound at the first token, and then too large: a norm of 1e36, say
        assert "\n" not in str(error), "more than a sentence"
        return "refused"


def _computed(model: LanguageModel, seed: int) -> str:
    import torch

    rng = random.Random(seed)
    ids = [rng.randrange(model.vocab_size) for _ in range(rng.choice((1, 5, 20)))]
    ids = ids[: max(model.context_length - 1, 1)]  # a file may state a context of one token
    model.tokenizer.decode([*model.tokenizer.encode("Ab ab, 1 é\n"), *ids])
    sequence = model.open()
    logits = sequence.feed(ids)
    assert logits.shape == (model.vocab_size,)
    fork = sequence.fork()
    if sequence.length < model.context_length:
        sequence.feed_embedding(model.embeddings[0])
        fork.feed([model.vocab_size - 1])
    sequence.rewind(0)
    assert torch.allclose(sequence.feed(ids), logits, atol=1e-2, rtol=1e-2)
    return "model"


MODEL, MATRIX = (
    ("dim", "heads", "key_heads", "width", "inner", "turned", "window", "rounded"),
    ("out", "inputs", "parts", "norm"),
)
NUMBERS_OF_MODEL = ("eps", "attention", "residual", "logits", "attention_cap", "logit_cap")
LAYER = ("table", "near")
PART = ("out", "kind", "bytes")
LOW_RANK = ("rank", "count", "kind", "a_bytes", "b_bytes")
PASS = ("lines", "inputs", "threads", "kept_count", "entering_width")
MOST_LINES = 64
LINE = ("n", "past", "of_plane", "of_head", "cache_size")


def of_sizes(seed: int) -> str:
    """A pass of a small model with one to three of the compiled code's arguments changed.

    The numbers of layers, output rows and watched layers are not changed, because the code cannot check them.
    """
    import torch
    from tiny_gguf import NUMBERS

    from core.models import native
    from core.models.adapter import LowRank
    from core.models.native import _Line, _Model, _Pass

    rng = random.Random(seed)
    columns, rows = 8, rng.choice((1, 3, 6))
    shape = native.Shape(dim=32, heads=2, key_heads=rng.choice((1, 2)), width=16, inner=64, eps=1e-5)
    keys, dtype = shape.key_heads, rng.choice((torch.float32, torch.bfloat16, torch.float16))

    def weight(out: int, inputs: int) -> native.Map:
        return torch.randn(out, inputs), None

    layers = [
        native.LayerMaps(
            q=weight(32, 32),
            k=weight(keys * 16, 32),
            v=weight(keys * 16, 32),
            out=weight(32, 32),
            gate=weight(64, 32),
            up=weight(64, 32),
            down=weight(32, 64),
        )
        for _ in range(2)
    ]
    made = native.Compiled(shape, layers, weight(100, 32), torch.ones(32), dtype)
    changes = {
        (1, "q_proj"): LowRank(torch.randn(3, 32), torch.randn(32, 3)),
        (1, "down_proj"): LowRank(torch.randn(2, 64), torch.randn(32, 2)),
    }
    made.adapt({place: [native.Change(low, 0.5)] for place, low in changes.items()})
    blocks = [torch.zeros(4, shape.key_heads, columns, 16) for _ in range(1 if rows == 1 else 2)]
    sizes = [rows] if rows == 1 else [rows - 1, 1]
    kept, watched, norm = torch.arange(rows), torch.tensor([0, 2]), torch.ones(shape.inner)
    held = h, turn, logits, features = (
        torch.randn(rows, 32),
        torch.zeros(rows, 16),
        torch.zeros(rows, 100),
        torch.zeros(rows, 64),
    )
    model = _Model.from_buffer_copy(made._model)
    of_model: Any = type(model.layer[0])
    first = of_model * 2
    copied: Any = first.from_buffer_copy((first).from_address(ctypes.addressof(model.layer.contents)))
    model.layer = ctypes.cast(copied, type(model.layer))
    low = [
        type(matrix.low.contents).from_buffer_copy(matrix.low.contents) for matrix in (copied[1].qkv, copied[1].down)
    ]
    copied[1].qkv.low, copied[1].down.low = map(ctypes.pointer, low)
    lines = (_Line * MOST_LINES)()  # the code cannot check how many there are; the others are zeros
    for line, n, block in zip(lines, sizes, blocks, strict=False):
        line.n, line.past = n, rng.choice((0, 1, columns - max(sizes)))
        line.cache, line.cache_size = block.data_ptr(), block.numel()
        line.of_plane, line.of_head = block.stride()[:2]
    stated = _Pass(
        lines=len(sizes),
        inputs=rows,
        threads=2,
        line=lines,
        h=h.data_ptr(),
        cos=turn.data_ptr(),
        sin=turn.data_ptr(),
        kept=kept.data_ptr(),
        kept_count=rows,
        logits=logits.data_ptr(),
        watched=watched.data_ptr(),
        watched_count=2,
        features=features.data_ptr(),
    )
    for _ in range(rng.choice((1, 1, 2, 3))):
        target, name = _place(rng, model, stated, lines[: len(sizes)], low)
        if name == "norm":  # as many factors as the widest matrix of this model has inputs
            target.norm = rng.choice((None, norm.data_ptr()))
            continue
        near = getattr(target, name)
        found = rng.choice(
            (near + 1, near - 1, near * 2, near // 2, -near, 0, rng.choice(NUMBERS), -rng.choice(NUMBERS))
        )
        if name in NUMBERS_OF_MODEL:
            found = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1.0, 1e300))
        elif name == "turned":
            found = min(found, near)  # it states the size of the rotation's memory
        elif name == "lines":
            found = min(found, MOST_LINES)
        elif name == "cache_size":
            found = min(found, near)  # it states the size of the memory
        setattr(target, name, found if isinstance(found, float) else (found + 2**63) % 2**64 - 2**63)
    if rng.random() < 0.2:
        kept[rng.randrange(rows)] = rng.choice((-1, rows, 2**40))
    if rng.random() < 0.2:
        watched[rng.randrange(2)] = rng.choice((-1, 1, 3, 2**40))
    code = native.library().polydraft_forward(model, stated)
    assert (code == 2) == bool(native.library().polydraft_fault(model, stated)) and len(held) == 4
    # The sanitizers do not see what is written past its room but within the one block of intermediate results.
    assert code == 2 or not any(matrix.norm for layer in copied for matrix in (layer.out, layer.down)), "a norm"
    return {0: "computed", 1: "refused", 2: "refused"}[code]


def _place(rng: random.Random, model: Any, stated: Any, lines: list[Any], low: list[Any]) -> tuple[Any, str]:
    where = rng.random()
    if where < 0.2:
        return stated, rng.choice(PASS)
    if where < 0.4:
        return rng.choice(lines), rng.choice(LINE)
    if where < 0.6:
        return model, rng.choice((*MODEL, *NUMBERS_OF_MODEL))
    if where < 0.75:
        return rng.choice(low), rng.choice(LOW_RANK)
    if where < 0.8:
        return model.layer[rng.randrange(2)], rng.choice(LAYER)
    matrix = getattr(model.layer[rng.randrange(2)], rng.choice(("qkv", "out", "gate", "up", "down")))
    part = matrix.part[rng.randrange(3)]
    return (part, rng.choice(PART)) if rng.random() < 0.5 else (matrix, rng.choice(MATRIX))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--first", type=int, default=0, help="the first case; a case's number is its seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        optimised, *of_range = args.child.split(",")
        serve(optimised, range(*map(int, of_range)))
    else:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        result = fuzz(args.first, args.cases, args.workers)
        sys.stdout.write(f"{result}\n")
        sys.exit(1 if result.wrong else 0)
