"""Errors that a person can act on: each message says what was given, what was expected and what to do."""


class PolydraftError(Exception):
    """The base of every error we raise on purpose; its text is one sentence meant for the user's eyes."""


class ModelNotFound(PolydraftError):
    """No model has this name, or no file lies at this path."""


class ModelFileError(PolydraftError):
    """The file is there but is no model we can read: truncated, not GGUF, or of an unsupported kind."""


class BackendUnavailable(PolydraftError):
    """The backend asked for, or every backend, cannot run on this machine."""


class ContextFull(PolydraftError):
    """The sequence would grow past what the model's cache has room for."""


class InputError(PolydraftError):
    """An argument is outside what the function accepts."""


def first_line(error: BaseException) -> str:
    """What another library's error says, short enough for one of our sentences: its first line, or its type."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
    return line if len(line) <= 200 else line[:199] + "…"
