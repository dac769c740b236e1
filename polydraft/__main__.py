"""`python -m polydraft`, and the `polydraft` command: the same wherever it is installed."""

from app.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
