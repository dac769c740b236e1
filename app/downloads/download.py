"""One download at a time, begun and stopped by the page. A thread reads what its process says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from app.downloads import child
from app.machine.offline import online
from core.errors import InputError, last_line

COMMAND = (sys.executable, "-P", "-m", child.__name__)  # -P: a package of the working folder may be called app
SHOWN = 300  # characters of a failed process's last line in a message


@dataclass
class DownloadState:
    """How far the latest download is.

    Attributes:
        name: OWNER/REPO:TYPE.
        running: whether its process runs.
        stage, come, bytes: see `core.hub.download.DownloadStep`.
        path: the file, once it is complete.
        message: a sentence, if it failed.
    """

    name: str
    running: bool = True
    stage: str = "asking"
    come: int = 0
    bytes: int = 0
    path: str = ""
    message: str = ""


class Downloads:
    """Any thread may call its methods. The process ends with the server, because its input ends."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Args:
        command: of the process, which gets the name and the folder.
        """
        self._command = command
        self._changed = threading.Lock()
        self._state: DownloadState | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def begin(self, name: str, folder: Path) -> None:
        """Downloads a file into a folder, from where an earlier download of it stopped.

        Raises: InputError while another download runs, or if the system starts no process.
        """
        with self._changed:
            if self._state is not None and self._state.running:
                raise InputError("A model is being downloaded; wait until it is there, or stop it.")
            log = TemporaryFile()  # noqa: SIM115 the thread closes it
            try:
                process = subprocess.Popen(
                    (*self._command, name, str(folder)),
                    env=online(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    process_group=0 if os.name == "posix" else None,  # Ctrl+C ends the server, and with it the input
                )
            except OSError as error:
                log.close()
                raise InputError(f"The download cannot be started: {error.strerror or error}.") from error
            self._state, self._process = DownloadState(name), process
            self._thread = threading.Thread(
                target=self._follow, args=(self._state, process, log), name="polydraft-download", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Ends the download; what has come stays on the disk."""
        with self._changed:
            process, thread = self._process, self._thread
        if process is not None and thread is not None:
            process.kill()
            thread.join()

    def state(self) -> dict[str, object] | None:
        """How far the latest download is; None if there was none."""
        with self._changed:
            return None if self._state is None else asdict(self._state)

    def _follow(self, state: DownloadState, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        message = ""
        with log, process.stdin, process.stdout:
            for line in process.stdout:
                if not line.endswith(b"\n"):
                    break  # it was killed while it wrote
                said = json.loads(line)
                message = said.get("refused", "")
                with self._changed:
                    state.stage, state.come = said.get("stage", state.stage), said.get("come", state.come)
                    state.bytes, state.path = said.get("bytes", state.bytes), said.get("path", "")
            if process.wait() > 0:
                log.seek(0)
                message = f"The download ended with an error: {last_line(log.read().decode(errors='replace'))[:SHOWN]}"
        with self._changed:
            state.running, state.message = False, message
            self._process = self._thread = None
