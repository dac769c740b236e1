"""The `polydraft` command line: every command calls one function of the library.

Only typer, rich and the settings are imported here. The commands import torch, Gradio and the models when they need
them, so `--help` responds immediately.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from app.cli import flags
from app.cli import learn as learn_cli
from app.cli import models as models_cli
from app.cli import ngram as ngram_cli
from app.cli import train as train_cli
from app.service.given import (
    ALL_FLAGS,
    RULE_FLAGS,
    of_rules,
    refuse_base_store,
    refuse_draft_model,
    refuse_stores,
    settings_of,
)
from app.service.threads import leave_cores_to
from app.web.running import PORT
from app.web.security.offline import stay_offline
from core.chains import joined
from core.controls import (
    CATALOG,
    DEFAULT_DRAFTER,
    DEFAULT_METHOD,
    DEFAULT_MODE,
    DEFAULT_RULE,
    DRAFTERS,
    MODES,
    SPECULATIONS,
)
from core.errors import InputError, PolydraftError
from core.files import check_regular
from core.options import DRAFTING

if TYPE_CHECKING:
    from core.present import TextDraft


class Sentences(TyperGroup):
    """Turns our own errors, and those of files, into one sentence on stderr and exit code 1; Ctrl+C exits silently with
    130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the program that reads the output has ended: click exits silently
        except (PolydraftError, OSError) as error:
            typer.echo(f"Error: {flags.sentence_of(error)}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(cls=Sentences, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.add_typer(ngram_cli.app, name="ngram")
app.add_typer(train_cli.app, name="train")
app.add_typer(models_cli.app, name="models")

Model = Annotated[
    str,
    typer.Option(help="[bold]default[/], a .gguf file, a model's folder, or a Hugging Face id.", metavar="NAME"),
]
Backend = Annotated[
    Literal["auto", "torch", "llama.cpp"],
    typer.Option(help="The engine that runs the model: auto (the fastest here), torch or llama.cpp.", metavar="NAME"),
]
Precision = Annotated[
    Literal["file", "float32", "bfloat16", "int8"],
    typer.Option(
        help="Weights of torch on a CPU: in the file's format, unpacked (the same results, slower), or rounded; or "
        "[bold]int8[/], the file's weights with inputs rounded to 8 bits where a pass has more than eight: faster.",
        metavar="NAME",
    ),
]
BaseStores = Annotated[
    list[str] | None,
    typer.Option(
        "--base-store",
        help="An n-gram store of common phrases: a file that [bold]polydraft ngram build[/] wrote, [bold]default[/] "
        "for the one that comes with the app, or [bold]none[/]. Several are mixed, each with a weight if you add one.",
        metavar="FILE[=WEIGHT]",
        show_default="those chosen on the page",
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object.")]

_TEMPERATURE = DRAFTING["temperature"]
_CONTEXT = 28  # characters of the text shown before each draft

RuleNames = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        help=f"The sampling rule: {', '.join(CATALOG)}. Given several times, the rules are applied in this order.",
        metavar="NAME",
        show_default=DEFAULT_RULE,
    ),
]
ModeName = Annotated[
    str | None,
    typer.Option(
        "--mode",
        help=f"The draft method: {', '.join(MODES)}.",
        metavar="NAME",
        show_default=f"{DEFAULT_MODE}; with --speculate {DEFAULT_METHOD}",
    ),
]
Speculate = Annotated[
    str | None,
    typer.Option(
        help="Make sampled or greedy drafts several tokens per pass: "
        + " ".join(f"[bold]{name}[/]: {description}" for name, (description, _) in SPECULATIONS.items()),
        metavar="NAME",
    ),
]
DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        help="With --speculate, the drafter that proposes tokens: "
        + " ".join(f"[bold]{name}[/]: {description}" for name, description in DRAFTERS.items()),
        metavar="NAME",
        show_default=DEFAULT_DRAFTER,
    ),
]
HeadFolder = Annotated[
    Path | None,
    typer.Option(
        help="With --drafter eagle3: the folder of the head; by default the one for the default model.",
        metavar="FOLDER",
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        help="For the drafter [bold]model[/] of speculation: a smaller model with the same tokenizer.", metavar="NAME"
    ),
]

AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="A site or an extension of a browser that may request drafts, with the token: app://obsidian.md, "
        "chrome-extension://ID, http://localhost:3000. Give it once for each.",
        metavar="ORIGIN",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        help="A further name by which programs reach this machine, such as host.docker.internal. Give it once for "
        "each.",
        metavar="NAME",
    ),
]


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    model: Model = "default",
    backend: Backend = "auto",
    precision: Precision = "file",
    base_store: BaseStores = None,
    draft_model: DraftModel = None,
    port: Annotated[
        int | None,
        typer.Option(help="The port of the page; 7893 by default.", min=1, max=65535, metavar="N"),
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
    serve(*options, allow_origin=allow_origin or (), allow_host=allow_host or ())


@app.command()
def serve(
    model: Model = "default",
    backend: Backend = "auto",
    precision: Precision = "file",
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
) -> None:
    """Serve drafts to editors and other programs, without the page.

    [bold]/v1/completions[/] is OpenAI's interface, [bold]/infill[/] that of llama.vim and llama.vscode; docs/clients.md
    names the others. The page, while it runs, serves them too.
    """
    from app.web import serving as server

    options = model, backend, port, False, precision, not no_token, base_store, draft_model
    server.serve(*options, page=False, host=host, allow_origin=allow_origin or (), allow_host=allow_host or ())


@app.command()
def lsp() -> None:
    """Serve drafts to an editor that speaks the Language Server Protocol, on standard input and output.

    It sends requests to a running Polydraft, or starts one. docs/clients.md describes the setup of editors.
    """
    from app.clients.lsp.server import run

    run()


@app.command(cls=flags.command_of(ALL_FLAGS))
def complete(
    ctx: typer.Context,
    text: Annotated[
        str, typer.Argument(help="The text so far, in quotation marks.", metavar="TEXT", show_default=False)
    ],
    store: Annotated[
        list[str] | None,
        typer.Option(help="Use these personal stores, instead of those that are on.", metavar="NAME"),
    ] = None,
    mode: ModeName = None,
    rule: RuleNames = None,
    speculate: Speculate = None,
    drafter: DrafterName = None,
    draft_model: DraftModel = None,
    head: HeadFolder = None,
    model: Model = "default",
    backend: Backend = "auto",
    precision: Precision = "file",
    base_store: BaseStores = None,
    background: Annotated[
        Path | None,
        typer.Option(
            help="A text that the model reads first and that the drafts do not continue: the mail that you answer, "
            "notes, names. Its end counts, about 2,000 characters.",
            metavar="FILE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print drafts that continue a text.

    Example: [bold]polydraft complete "Thank you for your" --k 5[/]

    [bold]polydraft complete "Once upon a" --mode sampled --rule top-w --beta 4 --temperature 1.5[/]

    [bold]polydraft complete "Once upon a" --mode sampled --rule top-n-sigma --rule top-p --n-sigma 1.3[/]

    A flag that would have no effect is refused.
    """
    given = flags.given(ctx, ALL_FLAGS)
    settings = settings_of(given, joined(rule or [DEFAULT_RULE]), mode, speculate, drafter)
    if store:
        refuse_stores(settings)
    if head is not None and not (settings.speculates and drafter == "eagle3"):
        raise InputError("--head changes nothing without --speculate and --drafter eagle3; add them.")
    refuse_draft_model(settings, draft_model)
    if base_store:
        refuse_base_store(settings)
    text = _without_surrogates(text)
    about = "" if background is None else _background(background)
    from app.learning.base_stores import shelf_of
    from app.service import sampling, speculation
    from core.autocomplete import load_autocomplete

    autocomplete = load_autocomplete(
        model, backend, precision=precision, bases=shelf_of(base_store), prose=settings.prose
    )
    if given.get("prose") and not autocomplete.has_prose:
        raise InputError(
            f"--prose given, and there is no adapter to prose for {autocomplete.model.name}; leave it out."
        )
    if store:
        autocomplete.adapt(store)
    leave_cores_to(autocomplete.model)
    for notice in [autocomplete.notice, *sampling.notes(settings)]:
        if notice:
            typer.echo(notice, err=True)
    if draft_model is not None:
        speculation.add_draft_model(autocomplete, draft_model, backend, precision)
    if settings.speculates:
        speculation.prepare(autocomplete, settings, head)
    more = {"stores": store or None, "tails": not settings.chooses_exact_steps, "background": about}
    options = sampling.options(autocomplete, settings, **more)
    if options.tails:
        for _ in autocomplete.time_rows():
            pass
    began = time.perf_counter()
    completion = autocomplete.open().complete(text, options=options)
    while not completion.done:
        completion.advance(autocomplete.model.forward(completion.rows()))
    ms = (time.perf_counter() - began) * 1000
    drafts = [draft for draft in completion.drafts if draft.probability >= settings.min_confidence]
    figures = completion.figures if settings.speculates else None
    if as_json:
        found = {
            "text": text,
            "drafts": [
                {
                    "text": d.text,
                    "probability": d.probability,
                    "whole": d.whole,
                    "finished": d.finished,
                    "personal": d.personal,
                    "tail": d.tail,
                }
                | ({"tokens": _tokens(d)} if figures else {})
                for d in drafts
            ],
            "model": autocomplete.model.name,
            "backend": autocomplete.model.backend,
            "ms": round(ms, 1),
        }
        if settings.sampling.mode in DRAFTING["exact_steps"].modes:
            found["exact_steps"] = completion.exact_steps
        if figures:
            found |= {
                "speculation": settings.sampling.speculation.mode,
                "accept_length": round(figures.accept_length, 2),
                "notice": figures.notice,
            }
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    _print_drafts(text, drafts)
    if figures:
        typer.echo(f"   {figures.accept_length:.2g} tokens a pass, {ms:.0f} ms")
        if figures.notice:
            typer.echo(figures.notice, err=True)
    if not drafts:
        typer.echo(
            f"No draft is more probable than {settings.min_confidence:g}: lower --min-confidence.",
            err=True,
        )


@app.command(name="sample-view", cls=flags.command_of(RULE_FLAGS))
def sample_view(
    ctx: typer.Context,
    text: Annotated[
        str, typer.Argument(help="The text so far, in quotation marks.", metavar="TEXT", show_default=False)
    ],
    temperature: Annotated[
        float,
        typer.Option(
            help="Divides the logits before the rules.", metavar="N", min=_TEMPERATURE.low, max=_TEMPERATURE.high
        ),
    ] = float(_TEMPERATURE.default),
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="Given several times: print this chain of rules, too.", metavar="NAME"),
    ] = None,
    model: Model = "default",
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Print the tokens that each rule would keep, side by side.

    Example: [bold]polydraft sample-view "The capital of" --temperature 2[/]
    """
    text = _without_surrogates(text)
    if rule is not None and len(rule) < 2:
        raise InputError("--rule given once, and all rules are printed alone already; give a chain of two or more.")
    together = of_rules(flags.given(ctx, RULE_FLAGS), temperature, joined(rule or [DEFAULT_RULE]))
    from app.service import sampling
    from core.autocomplete import load_autocomplete

    autocomplete = load_autocomplete(model, backend, None)
    view = sampling.view(autocomplete, text, temperature, together)
    if as_json:
        typer.echo(json.dumps({"text": text} | view.as_dict(), ensure_ascii=False))
    else:
        Console(highlight=False).print(*sampling.table(view, _visible))


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
    paper: Annotated[bool, typer.Option("--paper", help="Use the paper's constants, whatever the result.")] = False,
    buckets: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --paper: the number of entropy classes with separate constants; 0 for one set.",
            metavar="N",
        ),
    ] = 0,
    prose: Annotated[
        bool, typer.Option("--prose/--no-prose", help="With the adapter to prose, if the model has one, or without.")
    ] = bool(DRAFTING["prose"].default),
    model: Model = "default",
    backend: Backend = "auto",
) -> None:
    """Measure the constants of ARC's tolerance, once per model."""
    from app.cli import calibrate

    with Console(stderr=True).status("calibrating …") as status:
        made, file = calibrate.run(
            model,
            backend,
            text,
            prompts,
            out,
            delta,
            temperature,
            None if paper else budget,
            buckets,
            prose,
            lambda what: status.update(f"{what} …"),
        )
    c = made.overall
    typer.echo(f"{made.model}: c'_s {c.c_s:.3g}, ακ {c.alpha_kappa:.3g}, τ_δ {c.tau:.3g} from {made.samples} pairs")
    typer.echo(str(file))


@app.command()
def token(
    new: Annotated[
        bool, typer.Option("--new", metavar="", help="Replace the token; programs and browsers then need the new one.")
    ] = False,
) -> None:
    """Print the token that gives programs and browsers access.

    Example: [bold]curl -H "Authorization: Bearer $(polydraft token)" http://127.0.0.1:7893/api/status[/]
    """
    from app.web.security import access

    typer.echo(access.new_token() if new else access.token())
    if new:
        typer.echo("A running Polydraft keeps the old token until you restart it.", err=True)


@app.command()
def pair(
    port: Annotated[int, typer.Option(help="The port of the running Polydraft.", min=1, max=65535, metavar="N")] = PORT,
) -> None:
    """Print a code with which an extension of your browser is paired with the running Polydraft."""
    from app.cli.pair import code_of

    typer.echo(code_of(port))
    typer.echo("Type it into the extension within two minutes. It is valid once.", err=True)


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
        typer.echo(path)
    if not files:
        typer.echo("Polydraft was not in the menu.", err=True)


@app.command()
def service(
    what: Annotated[
        Literal["install", "status", "remove"],
        typer.Argument(
            help="install: start `polydraft serve` now and with every session; status: does it run; remove: end it.",
            show_default=False,
        ),
    ],
    port: Annotated[int, typer.Option(help="The port of the server.", min=1, max=65535, metavar="N")] = PORT,
    model: Model = "default",
) -> None:
    """Let the system start the server for programs: systemd on Linux, launchd on a Mac."""
    from app.cli import service

    if what == "install":
        file = service.install(["--port", str(port), "--model", model])
        typer.echo(file)
        typer.echo(f"Polydraft serves drafts at http://127.0.0.1:{port}, now and after every login.", err=True)
    elif what == "remove":
        removed = service.remove()
        typer.echo(removed or "There was no service.", err=removed is None)
    else:
        runs, sentence = service.status()
        typer.echo(sentence)
        raise typer.Exit(0 if runs else 3)  # as systemctl


@app.command()
def doctor(model: Model = "default", as_json: Json = False) -> None:
    """Check this machine, and print a remedy for each problem."""
    from app.cli import doctor

    raise typer.Exit(doctor.run(model, as_json))


app.command()(learn_cli.learn)


def _add_measurements() -> None:
    """Adds `bench` and `eval` from the package of measurements: a checkout has it, and the wheel polydraft-measure adds
    it. The product imports nothing else of it."""
    package = __name__.removesuffix("app.cli.main") + "measure"  # in a wheel, both are inside `polydraft`
    if find_spec(package):
        import_module(f"{package}.cli").register(app)
        return

    def missing(ctx: typer.Context) -> None:
        raise InputError(
            f"This installation has no `polydraft {ctx.command.name}`. `pip install polydraft-measure` adds it; a "
            "checkout of the repository has it."
        )

    for name in ("bench", "eval"):
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, help="Needs the package polydraft-measure.", context_settings=anything)(missing)


_add_measurements()


def main() -> None:
    """The entry point of the `polydraft` script."""
    for stream in (sys.stdout, sys.stderr):  # continue on a terminal that cannot show a character
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        app(prog_name="polydraft")
    except KeyboardInterrupt:
        sys.exit(130)


def _background(path: Path) -> str:
    """The text of a file of plain text. Raises InputError for a file that is none."""
    check_regular(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 ({error.reason}); give --background a text file.") from error
    if not text.strip():
        raise InputError(f"{path} contains no text, so --background changes nothing; leave it out.")
    return text


def _without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which represent bytes that the terminal's encoding cannot decode; no tokenizer accepts
    them."""
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if clean != text:
        typer.echo("Some bytes of TEXT are not valid text; they were replaced by \ufffd.", err=True)
    return clean


def _print_drafts(text: str, drafts: list[TextDraft]) -> None:
    """Formats number, probability and draft, after the end of the text so that spaces are visible."""
    last_line = text.rpartition("\n")[2]
    before = ("…" if len(last_line) > _CONTEXT else "") + last_line[-_CONTEXT:]
    console = Console(highlight=False, soft_wrap=True)
    for number, draft in enumerate(drafts, start=1):
        row = Text(f"{number}  {draft.probability:6.1%}  ")
        row.append(_visible(before), style="dim").append(_visible(draft.text), style="bold")
        console.print(row)


def _tokens(draft: TextDraft) -> list[dict[str, object]]:
    """Formats the draft token by token, with its origin in speculation and its local tolerance score if it has one."""
    return [
        {"text": draft.text[a:b], "how": how, "lts": None if lts is None else round(lts, 3)}
        for a, b, how, lts in draft.how
    ]


def _visible(text: str) -> str:
    """Escapes control characters, so that a draft cannot control the terminal."""
    return "".join(c if c.isprintable() or c in "\u200d\u200c" else ascii(c)[1:-1] for c in text)


if __name__ == "__main__":
    main()
