"""The root of the command line: its commands, its global options, and how every ending becomes an exit code."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from floodmark.cli.interruption import CommandInterrupted, explain_interruption, silence_py4j
from floodmark.cli.invocation import Invocation, LogSettings, Tools
from floodmark.patience import interrupted_by

Command: TypeAlias = Any  # typer gives the class no public name

COMMANDS = {
    "demo": "Show on a small shop what a kill in the middle of a write costs: nothing.",
    "init": "Write a project that runs at once, with no server.",
    "import-config": "Make a project file from a configuration of Redpanda Connect that polls a table.",
    "schema": "Print the JSON Schema of the project file.",
    "lint": "Check the project offline and say what each pair of source and sink guarantees.",
    "check": "Check the project online: connections, cursors, indexes, rights, retention.",
    "test": "Run the project's test cases: given rows of a source, expected rows of each sink.",
    "plan": "Show what the next run would do; touches nothing.",
    "run": "Run the jobs: read above the mark, write every sink, raise the mark.",
    "backfill": "Deliver a range of rows again; the mark stays where it is.",
    "reconcile": "Compare a job's source with its sink, and repair the differences.",
    "quarantine": "Show, replay and discard rows that broke a rule, and decide between events that contradict.",
    "events": "Prune the logs of events behind tables with history.",
    "marks": "Show, move, copy and clean the marks.",
    "runs": "Show what past runs did.",
    "show": "Show rows of a table, without a JVM where that is possible.",
    "query": "Ask the project's tables in SQL, without a JVM where that is possible.",
    "diff": "Show what changed between two runs: marks, rows, rules, tables; no JVM.",
    "lineage": "Show where tables and columns come from, and who depends on them; offline.",
    "rollback": "Put tables and marks of jobs back to how a run left them, or to their last good state.",
    "optimize": "Compact, order and clean the Delta tables that jobs fill.",
    "health": "Judge freshness, counts, quality, marks and pace; no JVM.",
    "alerts": "List the open alerts, or try the channels.",
    "report": "Write one HTML file to look at: tables, marks, runs, rules; no JVM.",
    "serve": "Show the same live in a browser; no JVM.",
    "workflow": "Run or check a workflow: the tasks of a Databricks-Jobs file.",
    "deadletters": "List, show, replay and discard the records that were given up.",
    "java": "Say which Java is used, or fetch one into the cache folder.",
    "servers": "Start a Kafka broker and a PostgreSQL server to try things with.",
}
MODULES = {
    "project": ("init", "schema", "lint", "check"),
    "surroundings": ("java", "servers"),
    "plan": ("plan",),
    "run": ("run",),
    "repair": ("backfill", "reconcile"),
    "runs": ("runs", "diff"),
    "rows": ("show", "query"),
    "health": ("health", "alerts"),
    "pages": ("report", "serve"),
}
"""Commands that stand in one module, each with an app named after it; any other has a module of its own name."""
REPAIRING = ("backfill", "reconcile", "quarantine", "deadletters", "marks", "rollback", "events", "optimize")
LOOKING = ("show", "query", "runs", "diff", "lineage", "health", "alerts", "report", "serve")
SURROUNDING = ("java", "servers")
GLOBAL_OPTIONS = ("--project", "-p", "--target", "-t", "--env-file", "--log-level", "--log-format")
GLOBAL_HELP = "Every command also takes --project FILE, --target NAME, --env-file FILE, --log-level and --log-format."
EPILOG = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 some jobs failed, 4 locked by another run, "
EPILOG += "5 a decision is needed, 6 plan --detailed-exitcode found changes, 130 stopped by Ctrl-C, 143 by SIGTERM."


class LazyGroup(TyperGroup):
    """Knows the name and the first sentence of every command; its module is loaded when it is chosen."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  (typer hands on what it likes)
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=sentence, rich_help_panel=panel_of(name))
            for name, sentence in COMMANDS.items()
        }

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """The global options, as help shows them."""
        return in_plain_words(super().get_params(ctx))

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """As typer does; for the shell, which asks at every key, words stay as they were typed."""
        if ctx.resilient_parsing:
            leave_words(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:  # type: ignore[override]
        """The real command in place of the one that `--help` lists."""
        name, command, rest = super().resolve_command(ctx, args)
        loaded = load_command(name) if name else command
        for each in [loaded, *getattr(loaded, "commands", {}).values()] if ctx.resilient_parsing else ():
            leave_words(each.get_params(typer.Context(each)))
        return name, loaded, rest

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """As typer does; a signal goes on as an exception of ours, of which typer would keep no more than 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise CommandInterrupted(error) from None


@dataclass(frozen=True)
class TypedWords:
    """What was typed, as it is: making numbers and paths of it would load pydantic first."""

    def coerce(self, value: Any, **_around: Any) -> Any:  # noqa: ANN401  (a word, or several)
        return value


def leave_words(params: list[Any]) -> None:
    """Let a command line that is not run be split into words, and no more."""
    for param in params:
        param.get_runtime_param = TypedWords


def panel_of(name: str) -> str:
    """Under which heading `--help` lists a command."""
    panels = {"Repair": REPAIRING, "Look": LOOKING, "This machine": SURROUNDING}
    return next((panel for panel, names in panels.items() if name in names), "Build and run")


def load_command(name: str) -> Command:
    """The command of that name, from its module alone."""
    home = next((module for module, names in MODULES.items() if name in names), None)
    module = import_module(f"floodmark.cli.{home or name.replace('-', '_')}")
    command = typer.main.get_command(getattr(module, f"{name}_app") if home else module.app)
    command.name = name
    for each in [command, *getattr(command, "commands", {}).values()]:
        each.epilog = each.epilog or GLOBAL_HELP
        in_plain_words(each.get_params(typer.Context(each)))
    return command


def in_plain_words(params: list[Any]) -> list[Any]:
    """Help without the types of Python: a switch stands alone, a number is N, any other value has its option's name."""
    for param in params:
        param._get_number_range_help_str = lambda: None  # a number that does not fit is refused in words
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None  # its own name and the sentence say it
            param.get_usage_pieces = partial(usage_of, param)
        elif getattr(param, "is_flag", False):
            param.metavar = param.metavar or ""
        elif hasattr(param, "bare_type") and "Literal" not in param.bare_type():  # words to choose from are shown
            param.metavar = param.metavar or ("N" if param.bare_type() == "int" else last_word(param))
    return params


def usage_of(param: Any, _context: object) -> list[str]:  # noqa: ANN401  (typer gives its parameters no public type)
    """An argument in the line of usage: in brackets if it may be left out, with dots if there may be several."""
    name = param.metavar or param.name.upper()
    return [f"{name if param.required else f'[{name}]'}{'...' if param.nargs != 1 else ''}"]


def last_word(param: Any) -> str:  # noqa: ANN401  (typer gives its parameters no public type)
    """`--env-file` takes a FILE."""
    return str(param.opts[0]).rpartition("-")[2].upper()


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False, epilog=EPILOG)


@app.callback()
def floodmark(
    ctx: typer.Context,
    project: Annotated[
        Path | None,
        typer.Option("--project", "-p", metavar="FILE", help="Else floodmark.yaml here or above."),
    ] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Which of the project's targets to use.")] = None,
    env_file: Annotated[Path | None, typer.Option(help="NAME=value lines for ${NAME} in the project file.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning (the default) or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="pretty or json; FLOODMARK_LOG=info,json sets both.")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Incremental pipelines on Spark, exactly once. These options may stand before or after the command."""
    invocation: Invocation = ctx.obj
    invocation.project, invocation.target, invocation.env_file = project, target, env_file
    invocation.logs = LogSettings.of(log_level, log_format)
    invocation.start_logging()


def run(arguments: Sequence[str], tools: Tools | None = None) -> int:
    """Run one command and give its exit code; every failure is two lines on stderr."""
    invocation = Invocation(tools or Tools())
    if "--version" in arguments[:1]:
        from floodmark import __version__

        print(f"floodmark {__version__}")
        return 0
    try:
        silence_py4j()
        with interrupted_by(signal.SIGTERM, signal.SIGINT):
            code = typer.main.get_command(app).main(
                options_first(arguments), prog_name="floodmark", standalone_mode=False, obj=invocation
            )
        return code if isinstance(code, int) else 0
    except CommandInterrupted as error:
        return explain_interruption(error.interruption, invocation)
    except KeyboardInterrupt as error:  # outside of a command: while its module was loaded, or its options were read
        return explain_interruption(error, invocation)
    except Exception as error:  # noqa: BLE001  (the last place where one can be explained)
        from floodmark.cli.output import explain_failure

        return explain_failure(error, invocation)
    finally:
        invocation.close()


def options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with the global options first, wherever they stood; what follows `--` stays."""
    front: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left and left[0] != "--":
        word = left.pop(0)
        is_global = word.partition("=")[0] in GLOBAL_OPTIONS
        (front if is_global else rest).append(word)
        if is_global and "=" not in word and left:
            front.append(left.pop(0))
    return [*front, *rest, *left]
