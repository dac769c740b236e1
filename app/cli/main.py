"""The `polydraft` command line: every command calls one function of the library.

Only typer, rich and the settings are imported here. The commands import torch, Gradio and the models when they need
them, so `--help` responds immediately.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import typer
from click import UsageError
from typer.core import TyperGroup

from app.cli import flags
from app.cli import learn as learn_cli
from app.cli import models as models_cli
from app.cli import ngram as ngram_cli
from app.cli.complete import CompleteOptions, complete
from app.cli.sample_view import sample_view
from app.cli.shared import (
    AllowHost,
    AllowOrigin,
    Backend,
    BaseStores,
    CacheMemory,
    DraftModel,
    Json,
    Model,
    Precision,
    bytes_of,
)
from app.machine.ending import end_on_signals, end_with_input
from app.machine.offline import stay_offline
from app.machine.output import say, visible
from app.machine.running import PORT
from app.options.given import ALL_FLAGS, RULE_FLAGS
from core.errors import InputError, PolydraftError


class Sentences(TyperGroup):
    """Turns our own errors, and those of files, into one sentence on stderr and exit code 1; Ctrl+C exits silently with
    130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the program that reads the output has ended: click exits silently
        except (PolydraftError, OSError) as error:
            say(f"Error: {flags.sentence_of(error)}", err=True)
            raise typer.Exit(1) from error
        except UsageError as error:  # typer prints it
            raise UsageError(visible(error.format_message()), error.ctx) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(cls=Sentences, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.add_typer(ngram_cli.app, name="ngram")
app.add_typer(models_cli.app, name="models")


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    model: Model = "default",
    backend: Backend = "auto",
    precision: Precision = "auto",
    base_store: BaseStores = None,
    draft_model: DraftModel = None,
    port: Annotated[
        int | None, typer.Option(help="The port of the page; 7893 by default.", min=1, max=65535, metavar="N")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", metavar="", help="Only print the page's address.")
    ] = False,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token", metavar="", help="Give every user and program of this machine access, without a token."
        ),
    ] = False,
    allow_origin: AllowOrigin = None,
    allow_host: AllowHost = None,
    cache_memory: CacheMemory = None,
) -> None:
    """Several drafts of your next words while you type, on your own machine.

    Without a command, the app opens in the browser. [bold]polydraft COMMAND --help[/] shows the options of a command.
    """
    if ctx.invoked_subcommand != "models":  # `models get` downloads what the user named
        stay_offline()
    if ctx.invoked_subcommand is not None:
        given = [each.opts[0] for each in ctx.command.params if flags.was_given(ctx, each.name or "")]
        if given:
            named = ", ".join(given)
            raise typer.BadParameter(f"{named} given before the command; options come after it.")
        return
    from app.web.serving import serve

    options = model, backend, port, not no_browser, precision, not no_token, base_store, draft_model
    cache = None if cache_memory is None else bytes_of(cache_memory)
    serve(*options, allow_origin=allow_origin or (), allow_host=allow_host or (), cache=cache)


@app.command()
def serve(
    model: Model = "default",
    backend: Backend = "auto",
    precision: Precision = "auto",
    base_store: BaseStores = None,
    draft_model: DraftModel = None,
    port: Annotated[int | None, typer.Option(help="The port; 7893 by default.", min=1, max=65535, metavar="N")] = None,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen at. With another than 127.0.0.1, other machines have access.", metavar="ADDRESS"
        ),
    ] = "127.0.0.1",
    no_token: Annotated[
        bool, typer.Option("--no-token", metavar="", help="Give every program that reaches the port access.")
    ] = False,
    allow_origin: AllowOrigin = None,
    allow_host: AllowHost = None,
    cache_memory: CacheMemory = None,
    with_input: Annotated[bool, typer.Option("--with-input", hidden=True)] = False,
) -> None:
    """Serve drafts to editors and other programs, without the page.

    [bold]/v1/completions[/] is OpenAI's interface, [bold]/infill[/] that of llama.vim and llama.vscode; docs/clients.md
    names the others. The page, while it runs, serves them too.
    """
    from app.web import serving as server

    if with_input:  # the language server starts it, and it ends with that
        end_with_input()
    options = model, backend, port, False, precision, not no_token, base_store, draft_model
    cache = None if cache_memory is None else bytes_of(cache_memory)
    more = {"allow_origin": allow_origin or (), "allow_host": allow_host or (), "cache": cache}
    server.serve(*options, page=False, host=host, **more)


@app.command()
def lsp() -> None:
    """Serve drafts to an editor that speaks the Language Server Protocol, on standard input and output.

    It sends requests to a running Polydraft, or starts one. docs/clients.md describes the setup of editors.
    """
    from app.clients.lsp.server import run

    run()


app.command(cls=flags.command_for(lambda: CompleteOptions, ALL_FLAGS))(complete)
app.command(name="sample-view", cls=flags.command_for(flags=RULE_FLAGS))(sample_view)


def _of_calibrate() -> type[Any]:
    from app.cli.calibrate import CalibrationRun  # imports torch

    return CalibrationRun


@app.command(cls=flags.command_for(_of_calibrate))
def calibrate(ctx: typer.Context) -> None:
    """Measure the constants of ARC's tolerance, once per model."""
    from app.cli.calibrate import CalibrationRun, run

    run(flags.chosen(ctx, CalibrationRun))


@app.command()
def token(
    new: Annotated[
        bool, typer.Option("--new", metavar="", help="Replace the token; programs and browsers then need the new one.")
    ] = False,
) -> None:
    """Print the token that gives programs and browsers access.

    Example: [bold]curl -H "Authorization: Bearer $(polydraft token)" http://127.0.0.1:7893/api/status[/]
    """
    from app.machine import token as tokens

    say(tokens.new_token() if new else tokens.token())
    if new:
        say("A running Polydraft keeps the old token until you restart it.", err=True)


@app.command()
def pair(
    port: Annotated[int, typer.Option(help="The port of the running Polydraft.", min=1, max=65535, metavar="N")] = PORT,
) -> None:
    """Print a code with which an extension of your browser is paired with the running Polydraft."""
    from app.cli.pair import code_of

    say(code_of(port))
    say("Type it into the extension within two minutes. It is valid once.", err=True)


@app.command()
def desktop(
    what: Annotated[
        Literal["install", "uninstall"],
        typer.Argument(help="install: add Polydraft to the menu; uninstall: remove it.", show_default=False),
    ],
) -> None:
    """Add Polydraft to the menu of a Linux desktop, with its icon, or remove it."""
    from app.cli import desktop

    files = desktop.install() if what == "install" else desktop.uninstall()
    for path in files:
        say(path)
    if not files:
        say("Polydraft was not in the menu.", err=True)


@app.command()
def service(
    ctx: typer.Context,
    what: Annotated[
        Literal["install", "status", "remove"],
        typer.Argument(
            help="install: start `polydraft serve` now and with every session; status: does it run; remove: end it.",
            show_default=False,
        ),
    ],
    port: Annotated[int, typer.Option(help="The port of the server.", min=1, max=65535, metavar="N")] = PORT,
    model: Model = "default",
    allow_origin: AllowOrigin = None,
    allow_host: AllowHost = None,
) -> None:
    """Let the system start the server for programs: systemd on Linux, launchd on a Mac.

    Its file keeps the options; a further [bold]install[/] replaces them.
    """
    from app.cli import service
    from app.web.security.allowed import allowed

    given = [
        each.opts[0] for each in ctx.command.params if each.name != "what" and flags.was_given(ctx, each.name or "")
    ]
    if given and what != "install":
        raise typer.BadParameter(f"{', '.join(given)} given, which only `polydraft service install` takes.")
    if what == "install":
        # What is wrong is said here, not at the next login.
        allowed(allow_origin or (), allow_host or ())
        model = service.model_anywhere(model)
        more = [("--allow-origin", origin) for origin in allow_origin or ()] + [
            ("--allow-host", host) for host in allow_host or ()
        ]
        file = service.install(["--port", str(port), "--model", model, *(word for pair in more for word in pair)])
        say(file)
        say(f"Polydraft serves drafts at http://127.0.0.1:{port}, now and after every login.", err=True)
    elif what == "remove":
        removed = service.remove()
        say(removed or "There was no service.", err=removed is None)
    else:
        runs, sentence = service.status()
        say(sentence)
        raise typer.Exit(0 if runs else 3)  # as systemctl


@app.command()
def doctor(model: Model = "default", as_json: Json = False) -> None:
    """Check this machine, and print a remedy for each problem."""
    from app.cli import doctor

    raise typer.Exit(doctor.run(model, as_json))


app.command()(learn_cli.learn)


def _add_research() -> None:
    """Adds `bench`, `eval` and `train` from the package of research: a checkout has it, and the wheel
    polydraft-research adds it. The product imports nothing else of it."""
    # In a wheel, both packages are inside `polydraft`. `python -m app.cli.main` calls this module `__main__`.
    package = (__package__ or "").removesuffix("app.cli") + "research"
    if find_spec(package):
        import_module(f"{package}.cli").register(app)
        return

    def missing(ctx: typer.Context) -> None:
        raise InputError(
            f"This installation has no `polydraft {ctx.command.name}`. `pip install polydraft-research` adds it; a "
            "checkout of the repository has it."
        )

    for name in ("bench", "eval", "train"):
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, help="Needs the package polydraft-research.", context_settings=anything)(missing)


_add_research()


def main() -> None:
    """The entry point of the `polydraft` script."""
    for stream in (sys.stdout, sys.stderr):  # continue on a terminal that cannot show a character
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    end_on_signals()
    app(prog_name="polydraft")


if __name__ == "__main__":
    main()
