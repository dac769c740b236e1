"""Writers on a personal store, each killed at a random moment. Run as `python -m tests.kill_writers STORE KILLS SEED`.

One process that has everything imported forks a writer per kill: starting Python anew would take most of the time.
Every writer adds numbered phrases, replaces a document, forgets and switches, and reports a phrase once its commit
has returned. Prints one JSON object: the phrases reported, and those reported as forgotten.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from core.ngram.personal import PersonalStore
from tests.ngram_tools import WordTokenizer

TOKENIZER = WordTokenizer(5000)
LONGEST = 0.01  # seconds until the kill, at most


def phrase(number: int) -> str:
    """Three words that occur in no other phrase: decimal digits of the number."""
    return f"{1000 + number // 1000} {2000 + number % 1000} {3000 + number % 7}"


def write(path: Path, first: int, out: int) -> None:
    """Writes until killed. Prints a line for each commit."""
    with PersonalStore.open(path, TOKENIZER) as store:
        os.write(out, b"o\n")
        number = first
        while True:
            store.learn(phrase(number))
            os.write(out, f"+{number}\n".encode())
            if number % 3 == 0:
                store.add("file", [f"1 2 3 {4000 + number % 999}", "5 6 7"])
                os.write(out, b"f\n")
            if number % 4 == 0:
                os.write(out, f"?{number}\n".encode())  # from here on it may be gone
                store.forget_phrase(phrase(number))
                os.write(out, f"-{number}\n".encode())
            if number % 5 == 0:
                store.switch(number % 2 == 0)
            number += 1


def main(path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    kept: set[int] = set()
    gone: set[int] = set()
    unsure: set[int] = set()
    number = 1
    PersonalStore.open(path, TOKENIZER, create=True).close()
    for cycle in range(kills):
        read, out = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                write(path, number, out)
            finally:
                os._exit(1)  # a writer that fails must not go on as a parent
        os.close(out)
        reports, lines = os.fdopen(read), list[str]()
        # Counted, not timed: a busy machine must not spare the later writes. One in five may be killed while it opens
        # the store.
        lines += [reports.readline() for _ in range(chance.randrange(1, 8) if cycle % 5 else 0)]
        time.sleep(chance.random() * LONGEST)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "a writer ended by itself"
        with reports:
            for line in [*lines, *reports]:
                if line[:1] in "+?-":
                    n = int(line[1:])
                    {"+": kept, "?": unsure, "-": gone}[line[0]].add(n)
                    number = max(number, n + 1)
        number += 1  # the commit during which the writer was killed may be complete or not
        with PersonalStore.open(path, TOKENIZER) as store:
            wrong = store.check()
            assert not wrong, wrong
    json.dump({"kept": sorted(kept - unsure), "gone": sorted(gone)}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
