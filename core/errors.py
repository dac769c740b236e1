"""Errors for the user: each message states the given value, the expected one and a remedy."""


class PolydraftError(Exception):
    """The base of every error we raise on purpose; its text is one sentence for the user."""


class ModelNotFound(PolydraftError):
    """No model has this name, or no file exists at this path."""


class ModelFileError(PolydraftError):
    """The file is not a model that we can read: truncated, not GGUF, or of an unsupported kind."""


class BackendUnavailable(PolydraftError):
    """The requested backend, or every backend, cannot run on this machine."""


class ContextFull(PolydraftError):
    """The sequence would exceed the model's cache."""


class InputError(PolydraftError):
    """An argument is outside the accepted values."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error, or its type, for use in one of our sentences."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
    return line if len(line) <= 200 else line[:199] + "…"


def last_line(output: str) -> str:
    """The last line of a program's output that is not empty."""
    return (output.strip().splitlines() or ["no output"])[-1].strip()
