"""`python -m polydraft`, and the `polydraft` command: the same wherever it is installed."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from app.cli.main import main as run  # takes a moment, in which Ctrl+C may come

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
