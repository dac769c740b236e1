"""A drafting server as a child process that ends with its parent, however that ends.

The child's standard input is a pipe that the parent holds open. When the parent is gone the pipe closes, and the child
ends in order, as with Ctrl+C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading

from core.errors import PolydraftError

TOLD = 2000  # characters of a failed child's output


class OwnServer:
    """`polydraft serve` at a port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes to it as long as it lives
        # -P: the folder in which the editor runs may have a package of the same name as ours.
        command = [sys.executable, "-P", "-m", __name__, str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        """The end of what the child printed, in one line."""
        self._said.seek(0)
        return " ".join(self._said.read().decode(errors="replace").split())[-TOLD:]

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def _main(port: int) -> None:
    from app.offline import stay_offline
    from app.server import serve

    stay_offline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(port=port, open_browser=False, page=False)
    except PolydraftError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
