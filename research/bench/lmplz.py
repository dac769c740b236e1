"""KenLM's lmplz beside our build of the same text, with tokenizing counted for both: its words are token ids."""

from __future__ import annotations

import os
import sys
import time
from itertools import islice
from pathlib import Path

import tokenizers

from core.errors import InputError, PolydraftError
from core.models import load_model
from core.models.hf_tokenizer import HFTokenizer
from core.models.tokenizer import SURROGATE
from ngram_builder.readers import documents, expand
from research.options import ModelOptions

ORDER = 6
AT_ONCE = 64  # documents that are encoded at once


def run(argv: list[str], log: Path, stdin: Path | None = None) -> tuple[float, float, int]:
    """Runs a program. Returns seconds, seconds of processor time, and the peak of resident memory in bytes. Raises
    PolydraftError with the end of its output, which goes to `log`."""
    began = time.perf_counter()
    redirect = [(os.POSIX_SPAWN_OPEN, handle, str(log), os.O_WRONLY | os.O_CREAT, 0o600) for handle in (1, 2)]
    redirect += [(os.POSIX_SPAWN_OPEN, 0, str(stdin or os.devnull), os.O_RDONLY, 0)]
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=redirect)
    except OSError as error:
        raise PolydraftError(f"{argv[0]} could not be started: {error.strerror}.") from error
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise PolydraftError(f"{argv[0]} failed: {log.read_text(errors='replace').strip()[-600:]}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, peak


def measure(program: Path, options: ModelOptions, text: Path, folder: Path) -> tuple[float, float]:
    """Estimates a model of all n-grams that occur twice. Returns seconds of processor time: of reading and encoding the
    text with the tokenizer's library, and of lmplz."""
    model = load_model(options.model)
    tokenizer = model.tokenizer
    model.close()
    if not isinstance(tokenizer, HFTokenizer):
        raise InputError(f"--lmplz encodes with the library tokenizers, which {options.model} does not use.")
    backend = tokenizers.Tokenizer.from_str(tokenizer.portable[0])
    words = folder / "words"
    began = time.process_time()
    with words.open("w") as file:
        read = (document for source in expand([text]) for document in documents(source, lambda _: None))
        texts = (SURROGATE.sub("\ufffd", document) for document in read)
        while some := [*islice(texts, AT_ONCE)]:
            for encoded in backend.encode_batch_fast(some, add_special_tokens=False):
                file.write(" ".join(map(str, encoded.ids)) + "\n")
    encoding = time.process_time() - began
    pruned = ["0", *["1"] * (ORDER - 1)]  # n-grams with this count and less are left out
    memory = ["--memory", "2G", "--temp_prefix", f"{folder}/"]
    argv = [str(program), "--order", str(ORDER), "--prune", *pruned, *memory, "--discount_fallback"]
    _, processor, _ = run([*argv, "--arpa", str(folder / "arpa")], folder / "lmplz.log", stdin=words)
    return encoding, processor
