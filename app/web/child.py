"""`polydraft serve` as a child process that ends with its parent, even if the parent is killed.

Its standard input is a pipe that the parent keeps open. When the parent ends, the pipe closes and the child shuts down,
as with Ctrl+C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from app.machine.ending import end, end_on_signals
from app.machine.offline import stay_offline
from app.web.serving import serve
from core.errors import PolydraftError

PATIENCE = 5  # seconds for an orderly end


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGINT)  # a second one ends it at once


def _main(port: int) -> None:
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
