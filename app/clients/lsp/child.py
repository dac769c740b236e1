"""A drafting server as a child process that ends with its parent, even if the parent is killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile

SHOWN = 2000  # characters of a failed child's output in a message


class OwnServer:
    """`polydraft serve` at a port, as a child process."""

    def __init__(self, port: int) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes to it until it ends
        # -P, because the editor's folder may contain a package with the same name as ours.
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", "polydraft", "serve", "--with-input", "--port", str(port)),
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def output(self) -> str:
        """Returns the end of the child's output, in one line."""
        self._output.seek(0)
        return " ".join(self._output.read().decode(errors="replace").split())[-SHOWN:].removeprefix("Error: ")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
