"""A drafting server as a child process that ends with its parent, even if the parent is killed.

The child's standard input is a pipe that the parent keeps open. When the parent ends, the pipe closes and the child
shuts down, as with Ctrl+C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from core.errors import PolydraftError

PATIENCE = 5  # seconds for an orderly end
SHOWN = 2000  # characters of a failed child's output in a message


class OwnServer:
    """`polydraft serve` at a port, as a child process."""

    def __init__(self, port: int) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes to it until it ends
        # -P, because the editor's folder may contain a package with the same name as ours.
        command = [sys.executable, "-P", "-m", __name__, str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def output(self) -> str:
        """Returns the end of the child's output, in one line."""
        self._output.seek(0)
        return " ".join(self._output.read().decode(errors="replace").split())[-SHOWN:]

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGINT)  # a second one ends it at once


def _main(port: int) -> None:
    from app.web.ending import end, end_on_signals
    from app.web.security.offline import stay_offline
    from app.web.serving import serve

    stay_offline()
    end_on_signals()
    signal.signal(signal.SIGINT, end)  # also if the editor started us with it ignored
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(port=port, open_browser=False, page=False)
    except PolydraftError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
