"""`python -m polydraft`, and the `polydraft` command: the same wherever it is installed."""

from __future__ import annotations

import os
import sys

# How often a thread of OpenMP looks for work before it sleeps: for some 200 µs. By default it does so for milliseconds,
# and keeps a core from the browser and from other programs. libgomp reads this once, as torch is imported.
WAITING, SPINS = "GOMP_SPINCOUNT", "10000"


def main() -> None:
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(WAITING, SPINS)
    try:
        from app.cli.main import main as run  # takes a moment, in which Ctrl+C may come

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
