"""The `polydraft` command line: every command calls one function of the library.

Only typer, rich and the settings are imported here. The commands import torch, Gradio and the models when they need
them, so `--help` responds immediately.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from click import UsageError
from rich.console import Console
from typer.core import TyperGroup

from app.cli import complete as complete_cli
from app.cli import flags
from app.cli import learn as learn_cli
from app.cli import models as models_cli
from app.cli import ngram as ngram_cli
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
    Yes,
    bytes_of,
    refuse_to_replace,
)
from app.machine.ending import end_on_signals
from app.machine.offline import stay_offline
from app.machine.output import say, visible
from app.machine.running import PORT
from app.options.given import ALL_FLAGS, RULE_FLAGS
from core.errors import InputError, PolydraftError
from core.options import DRAFTING


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
) -> None:
    """Serve drafts to editors and other programs, without the page.

    [bold]/v1/completions[/] is OpenAI's interface, [bold]/infill[/] that of llama.vim and llama.vscode; docs/clients.md
    names the others. The page, while it runs, serves them too.
    """
    from app.web import serving as server

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


app.command(cls=flags.command_of(ALL_FLAGS))(complete_cli.complete)
app.command(name="sample-view", cls=flags.command_of(RULE_FLAGS))(sample_view)


@app.command()
def calibrate(
    text: Annotated[
        Path | None, typer.Option(help="A file or folder of text to cut prompts from; .txt or .jsonl.zst.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many prompts.", metavar="N")] = 200,
    out: Annotated[Path | None, typer.Option(help="The file to write; by default in the user's data folder.")] = None,
    delta: Annotated[float, typer.Option(help="The share of positions where the bound may fail.", metavar="N")] = 0.05,
    temperature: Annotated[
        float, typer.Option(min=0.05, help="The temperature at which texts will be sampled.", metavar="N")
    ] = 1.0,
    budget: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="The divergence to tolerate, in bits; 1 tolerates everything.", metavar="N"),
    ] = 0.5,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="Measure the paper's constants, for evaluations and benchmarks; the app does not use them."
        ),
    ] = False,
    buckets: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --paper: the number of entropy classes with separate constants; 0 for one set.",
            metavar="N",
        ),
    ] = 0,
    positions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --paper: the number of positions of a text that share the risk delta; by default each has it.",
            metavar="N",
        ),
    ] = None,
    prose: Annotated[
        bool, typer.Option("--prose/--no-prose", help="With the adapter to prose, if the model has one, or without.")
    ] = bool(DRAFTING["prose"].default),
    yes: Yes = False,
    model: Model = "default",
    backend: Backend = "auto",
) -> None:
    """Measure the constants of ARC's tolerance, once per model."""
    from app.cli import calibrate

    if out is not None:
        refuse_to_replace(out, yes, calibrate.is_calibration)
    tolerated = None if paper else budget
    wanted = calibrate.CalibrationRun(
        model, backend, text, prompts, delta, temperature, tolerated, buckets, positions, prose
    )
    with Console(stderr=True).status("calibrating …") as status:
        calibration, held, file = calibrate.run(wanted, out, lambda what: status.update(f"{what} …"))
    for line in (*calibrate.sentences(calibration, held), file):
        say(line)


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
