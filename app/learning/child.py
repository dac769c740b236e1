"""Trains a personal store's adapter in a process of its own, for `learner.py`; and the steps of `polydraft learn`.

The first line of standard input is an `Order` as JSON. A later line, "pause" or "go", pauses the training before the
next layer of the model, and continues it. The end of the input ends the training: the server wants that, or has itself
ended, even if it was killed. The state is written first, so a later training resumes. Each line of standard output is
a JSON object with one entry: "stage", "outcome", "refused" with a sentence, or "stopped".

A signal could pause the process too, but in the middle of a transaction, which would block every writer of the store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import PolydraftError

if TYPE_CHECKING:
    from core.models.adapter import Adapter
    from training.personal import Outcome, Stage

TYPING = 0.1  # of the minutes: for typing held-out text at the end
MINUTES, MEMORY = 10.0, 3.0  # the bounds of a training, if the user gives none; memory in GB
NICE = 10  # so that programs in use, Polydraft among them, go first
PATIENCE = 20.0  # seconds after the end of the input, after which the process ends without writing the state
COMMANDS, ANSWERS = 0, 1  # descriptors of the standard input and output


@dataclass(frozen=True)
class Order:
    """What to train.

    Attributes:
        store: the file of the personal store.
        model: as in `load_model`.
        base_store: the file of the base store; None for none.
        minutes, memory: see `training.personal.learn`.
    """

    store: str
    model: str = "default"
    base_store: str | None = None
    minutes: float = MINUTES
    memory: float = MEMORY


def steps_of(
    order: Order, clock: Callable[[], float] = time.monotonic, check_cancelled: Callable[[], None] = lambda: None
) -> Generator[Stage | Outcome]:
    """Loads the model and trains; see `training.personal.learn`."""
    from core.models.load import load_module
    from core.models.prose import prose_of
    from core.ngram.base import base_store
    from core.ngram.personal import PersonalStore
    from training.adapter import merge
    from training.personal import Documents, learn
    from training.texts import sample

    def typed(adapter: Adapter, known: Documents, held: Documents) -> tuple[int, float, float]:
        from app.options.typist import keys_saved

        return keys_saved(
            order.model, base, adapter, prose, known, held, TYPING * 60 * order.minutes, clock, check_cancelled
        )

    module = load_module(order.model)
    if (prose := prose_of(module)) is not None:  # the adapter is used on top of it
        merge(module, prose)
    base, _ = base_store(module.tokenizer.fingerprint, Path(order.base_store) if order.base_store else None)
    with closing(PersonalStore.open(order.store, module.tokenizer)) as store:
        minutes = (1 - TYPING) * order.minutes
        yield from learn(
            store,
            module,
            base,
            sample(),
            minutes,
            order.memory,
            clock=clock,
            check_cancelled=check_cancelled,
            typed=typed,
        )


def go_last() -> None:
    """Lowers the priority of this process."""
    with suppress(OSError):
        if sys.platform == "win32":
            import psutil

            psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        else:
            os.nice(NICE)


class Stopped(Exception):
    """The input has ended."""


class Commands:
    """The commands of the server. One thread reads them while another one trains."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paused = self._ended = False
        self._waited = 0.0  # seconds

    def listen(self, lines: Iterable[str]) -> None:
        """Follows the commands until the input ends."""
        for line in lines:
            self._set(line == "pause", False)
        self._set(False, True)

    def check_cancelled(self) -> None:
        """Waits while the training is paused. Raises Stopped when it is to end."""
        if not (self._paused or self._ended):
            return
        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._paused)
        self._waited += time.monotonic() - began
        if self._ended:
            raise Stopped

    def clock(self) -> float:
        """Seconds, without those of pauses."""
        return time.monotonic() - self._waited

    def _set(self, paused: bool, ended: bool) -> None:
        with self._changed:
            self._paused, self._ended = paused, ended
            self._changed.notify_all()


def answers(lines: Iterator[str], trained: Callable[..., Generator[Any]] = steps_of) -> Generator[dict[str, Any]]:
    """The answers to the lines of the input."""
    order, commands = Order(**json.loads(next(lines))), Commands()
    threading.Thread(target=_obey, args=(commands, lines), daemon=True).start()
    try:
        with closing(trained(order, commands.clock, commands.check_cancelled)) as steps:
            for step in steps:
                fields = asdict(step)
                if "result" in fields:
                    fields["result"]["better"] = step.result.better
                yield {"outcome" if "result" in fields else "stage": fields}
                commands.check_cancelled()
    except Stopped:
        yield {"stopped": True}
    except PolydraftError as error:
        yield {"refused": str(error)}


def _obey(commands: Commands, lines: Iterator[str]) -> None:
    commands.listen(lines)
    time.sleep(PATIENCE)  # the model may still be loading
    os.kill(os.getpid(), signal.SIGTERM)


def _lines() -> Iterator[str]:
    """The lines of the standard input. It is read without Python's buffer, whose lock a waiting thread would keep when
    the interpreter ends."""
    held = b""
    while data := os.read(COMMANDS, 1024):
        *whole, held = (held + data).split(b"\n")
        yield from (line.decode() for line in whole)


def _main() -> None:
    from app.machine.offline import stay_offline

    stay_offline()
    go_last()
    # The output of libraries goes to the standard error.
    # The pipe breaks when the server is killed, and then again when the file is closed.
    with suppress(BrokenPipeError), os.fdopen(os.dup(ANSWERS), "w", encoding="utf-8") as out:
        os.dup2(2, ANSWERS)
        with closing(answers(_lines())) as lines:
            for answer in lines:
                print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    _main()
