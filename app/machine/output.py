"""What commands print: sentences and tables with names in them, which cannot control the terminal, and JSON.

A name of a file, a model or a store may contain escape codes, marks that reverse the direction of writing, and brackets
that rich reads as markup.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import typer
from rich.text import Text


def visible(text: str) -> str:
    """Escapes control characters, so that a draft or the name of a file cannot control the terminal."""
    return "".join(c if c.isprintable() or c in "\u200d\u200c" else ascii(c)[1:-1] for c in text)


def plain(text: object) -> Text:
    """A name, or a sentence with one, for what rich prints."""
    return Text(visible(str(text)))


def say(text: object, err: bool = False) -> None:
    """Prints one line."""
    typer.echo(visible(str(text)), err=err)


def say_json(value: object, indent: int | None = None) -> None:
    """Prints JSON. A terminal of another encoding than UTF-8 gets JSON's own escapes: those that replace a character
    which it cannot show (see `app.cli.main`) are Python's."""
    value = _finite(value)
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    typer.echo(text)


def _finite(value: Any) -> Any:
    """The same data with null for numbers that JSON has no form for."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
