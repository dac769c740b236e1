"""Trains the adapters of personal stores beside the server: one at a time, in a separate process at low priority, which
pauses while the user types.

A thread starts each process (`app.learning.child`), pauses and ends it; another one reads its output. When the server
ends, even if it is killed, the process's input is closed, and the process ends.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal

from app.learning import child as learner_child
from app.learning.child import Order
from core.errors import PolydraftError, last_line, traced

if TYPE_CHECKING:
    from app.learning.personal import StoreState, UnusableStore

COMMAND = (sys.executable, "-P", "-m", learner_child.__name__)  # -P: a package of the working folder may be called app
QUIET = 3.0  # seconds without a request for drafts until training goes on
GRACE = learner_child.PATIENCE + 5  # seconds after which a process that does not end on request is killed …
HURRY = 3.0  # … and when the server ends; writing the state takes less than one
SHOWN = 300  # characters of a failed process's last line in a message

LOADING = "Loading the model"
STOPPED = "Stopped. What is learned so far is kept; the next time it goes on from there."
KNOWN = "The model has learned all of this text already."
TOO_LITTLE = "There is not enough text yet: the model does not predict your newest text better than before. Add text."

log = logging.getLogger(__name__)


@dataclass
class Training:
    """The training of one store's adapter.

    Attributes:
        again: whether it replaces an adapter that was removed together with text, and learns from the remaining text.
        state: of the training; only one runs at a time.
        paused: whether it waits while the user types.
        stopping: whether its end was requested.
        description: of the current stage.
        share, left: the share that is done, 0 to 1; the seconds left, if known.
        curve: (tokens trained, mean ln p of held-out text).
        message: a sentence on its end; "" if the adapter is used.
        failed: whether an error ended it.
    """

    store: str
    again: bool = False
    state: Literal["waiting", "running", "ended"] = "waiting"
    paused: bool = False
    stopping: bool = False
    description: str = LOADING
    share: float = 0.0
    left: float | None = None
    curve: Sequence[Sequence[float]] = field(default_factory=tuple)
    message: str = ""
    failed: bool = False


@dataclass
class _Task:
    """A training with the fields that only this module uses: the store's `removals` when it was requested; the last
    response of its process; whether the process has closed its output; whether the training is dropped or starts anew
    when the process has ended."""

    training: Training
    order: Order
    removals: int
    answer: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    dropped: bool = False
    anew: bool = False


class Learner:
    """Trains adapters. Any thread may call its methods; only `close` waits for a process."""

    def __init__(
        self,
        order: Callable[[str], tuple[Order, int]],
        gave_up: Callable[[str], None] = lambda store: None,
        command: Sequence[str] | None = None,
        quiet: float = QUIET,
        clean: Callable[[str], None] = lambda store: None,
    ) -> None:
        """Args:
        order: returns the order for a store's process, and the store's `removals`; raises PolydraftError if the store
            cannot be trained.
        gave_up: called when an adapter that was removed with text is not trained again.
        command: of the process; None is `COMMAND`.
        clean: removes what a process that was killed has left half-written beside the store.
        """
        self.clean = clean
        self._order, self._gave_up = order, gave_up
        self._command, self._quiet = command or COMMAND, quiet
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._tasks: dict[str, _Task] = {}  # by store, in the order in which they wait
        self._typed = -math.inf  # when the latest request arrived
        self._running: _Task | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, store: str, again: bool = False) -> None:
        """Trains the store's adapter, after those that wait already. Raises PolydraftError if it cannot be trained."""
        order, removals = self._order(store)
        with self._changed:
            task = self._tasks.get(store)
            if self._closing or (task and task.training.state != "ended"):
                return
            self._tasks.pop(store, None)
            self._tasks[store] = _Task(Training(store, again), order, removals)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="polydraft-learner", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self, store: str) -> None:
        """Ends the store's training, which writes its state."""
        with self._changed:
            task = self._tasks.get(store)
            if task is None:
                return
            if task.training.state == "waiting":
                self._end(task, STOPPED)
            elif task.training.state == "running":
                task.training.stopping = True
                task.anew = False
            self._changed.notify_all()
            gave_up = task.training.again
        if gave_up:
            self._gave_up(store)

    def drop(self, store: str) -> None:
        """Ends the training of a store that will be deleted, and removes it from the list."""
        with self._changed:
            task = self._tasks.get(store)
            if task is None:
                return
            if task is self._running:
                task.training.stopping = task.dropped = True
            else:
                del self._tasks[store]
            self._changed.notify_all()

    def follow(self, rows: Iterable[StoreState | UnusableStore]) -> None:
        """Starts the trainings that the removal of text makes necessary.

        Args:
            rows: of all stores, or of those that changed.
        """
        for row in rows:
            if "problem" in row:
                continue
            store, removals = row["store"], row["removals"]
            with self._changed:
                task = self._tasks.get(store)
                active = task is not None and task.training.state != "ended"
                if task is not None and active and task.removals != removals:
                    task.removals, task.training.again = removals, True  # it was trained on text that was removed
                    if task is self._running:
                        task.training.stopping = task.anew = True
                    self._changed.notify_all()
            if row["relearning"] and not active:
                try:
                    self.start(store, again=True)
                except PolydraftError as error:
                    self._gave_up(store)
                    with self._changed:
                        ended = Training(store, True, "ended", message=str(error), failed=True)
                        self._tasks[store] = _Task(ended, Order(""), removals)

    def typed(self) -> None:
        """Pauses the training for a moment, because the user types."""
        self._typed = time.monotonic()
        task = self._running
        if task is not None and not task.training.paused:
            with self._changed:
                self._changed.notify_all()

    def trainings(self) -> list[dict[str, Any]]:
        """Every training since the server started, the latest of each store."""
        with self._changed:
            return [asdict(task.training) for task in self._tasks.values()]

    def close(self, timeout: float = 2 * HURRY) -> None:
        """Ends every training, and waits until the process has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    # ---------------------------------------------------------------- the thread

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                message, failed = self._run(task)
            except OSError as error:
                message, failed = f"The training cannot be started: {error.strerror or error}.", True
            except Exception as error:  # noqa: BLE001 a mistake in one training must not end the others
                log.warning("A training failed:\n%s", traced(error))
                message, failed = f"The training ended with an error: {error!r}", True
            if not self._closing:
                self.clean(task.training.store)
            with self._changed:
                self._running = None
                self._end(task, message, failed)
                if task.dropped and self._tasks.get(task.training.store) is task:
                    del self._tasks[task.training.store]
            if not (task.dropped or self._closing):
                self._after(task, failed)

    def _after(self, task: _Task, failed: bool) -> None:
        """Starts the training anew if text was removed meanwhile, by this or another program."""
        store, training = task.training.store, task.training
        try:
            _, removals = self._order(store)
            if task.anew or (failed and removals != task.removals):
                self.start(store, again=True)
                return
        except PolydraftError as error:
            training.message, training.failed = str(error), True
            failed = True
        if training.again and failed:
            self._gave_up(store)

    def _next(self) -> _Task | None:
        """Waits for a task, and until the user does not type. Returns the task; None at the end."""
        with self._changed:
            while not self._closing:
                task = next((task for task in self._tasks.values() if task.training.state == "waiting"), None)
                if task is not None and self._rest() <= 0:
                    task.training.state, self._running = "running", task
                    return task
                self._changed.wait(None if task is None else self._rest())
        return None

    def _rest(self) -> float:
        """Seconds until the latest request is long enough ago."""
        return self._typed + self._quiet - time.monotonic()

    def _run(self, task: _Task) -> tuple[str, bool]:
        """Runs the process. Returns how it ended, and whether that is an error."""
        with TemporaryFile() as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0 if os.name == "posix" else None,  # Ctrl+C ends the server, which ends it in order
            )
            assert process.stdin is not None
            assert process.stdout is not None
            reader = threading.Thread(target=self._read, args=(task, process.stdout), daemon=True)
            reader.start()
            try:
                self._steer(task, process.stdin)
                since = time.monotonic()
                while process.poll() is None and time.monotonic() - since < (HURRY if self._closing else GRACE):
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.1)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
                reader.join()
                process.stdout.close()
            return self._ending(task, process.returncode, log)

    def _steer(self, task: _Task, commands: IO[bytes]) -> None:
        """Sends the order and the pauses to the process, until the process ends or its end is requested."""
        messages = [json.dumps(asdict(task.order))]
        with suppress(BrokenPipeError), commands:  # the process has ended
            while True:
                for line in messages:
                    commands.write(line.encode() + b"\n")
                commands.flush()
                with self._changed:
                    training, rest = task.training, self._rest()
                    if training.paused == (rest > 0) and not self._over(task):
                        self._changed.wait(rest if training.paused else None)
                    if self._over(task):
                        return
                    paused = self._rest() > 0
                    messages = [] if paused == training.paused else ["pause" if paused else "go"]
                    training.paused = paused

    def _over(self, task: _Task) -> bool:
        return self._closing or task.silent or task.training.stopping

    def _read(self, task: _Task, answers: IO[bytes]) -> None:
        """Reads the output of the process to its end."""
        for line in answers:
            if not line.endswith(b"\n"):
                break  # it was killed while it wrote
            answer = json.loads(line)
            with self._changed:
                if stage := answer.get("stage"):
                    training = task.training
                    training.description, training.share = stage["description"], stage["share"]
                    training.left, training.curve = stage["left"], stage["curve"] or training.curve
                else:
                    task.answer = answer
        with self._changed:
            task.silent = True
            self._changed.notify_all()

    def _ending(self, task: _Task, status: int, log: IO[bytes]) -> tuple[str, bool]:
        if outcome := task.answer.get("outcome"):
            task.training.curve = outcome["curve"]
            if not outcome["result"]["better"]:
                return TOO_LITTLE, False
            if outcome["share"] < 1:
                return f"The time ended after {outcome['share']:.0%} of the training; learn again to go on.", False
            return "" if outcome["new"] else KNOWN, False
        if refused := task.answer.get("refused"):
            return refused, True
        if task.training.stopping or self._closing:
            return STOPPED, False
        if status == -getattr(signal, "SIGKILL", 9):
            return "The system ended the training, probably because memory was short. Close other programs first.", True
        log.seek(0)
        last = last_line(log.read().decode(errors="replace"))
        return f"The training ended with an error: {last[:SHOWN]}", True

    def _end(self, task: _Task, message: str, failed: bool = False) -> None:
        training = task.training
        training.state, training.message, training.failed = "ended", message, failed
        training.paused = training.stopping = False
        training.left = None
