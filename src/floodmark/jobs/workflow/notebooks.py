"""Notebooks as Databricks exports them: cells, magics, and the part of `dbutils` that a task needs.

A notebook runs from top to bottom with `spark`, `dbutils`, `display` and `store`, as it does there; one with a function
`main` is imported, and `main` is called with those of these and of its parameters that it names.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.inputs import parse_json, read_text
from floodmark.locations import importable
from floodmark.logs import get_logger
from floodmark.sources.tables.catalog import text_literal

if TYPE_CHECKING:
    from sqlglot import Token

    from floodmark.hwm import Json
    from floodmark.jobs.workflow.surroundings import Surroundings


log = get_logger(__name__)
CELL = re.compile(r"^# COMMAND -+\s*$")
MAGIC = re.compile(r"^# MAGIC ?(.*)$")
SILENT = ("md", "md-sandbox", "pip", "conda", "restart_python")
"""Magics that show something, or install what is installed here already."""
ARGUMENT = re.compile(r"\$\w+=.*", re.DOTALL)
VALUE_ENDS = ("VAR", "IDENTIFIER", "R_PAREN", "R_BRACKET")
"""Behind which a colon asks for a part of a value."""
JUPYTER = ".ipynb"
EMPTY: Any = object()
FindFile = Callable[[str], Path]


class NotebookEnd(Exception):
    """`dbutils.notebook.exit` was called; the rest of the notebook does not run."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value


@dataclass(frozen=True)
class Cell:
    """One cell: Python, or a magic with its text; `line` is where it begins, for tracebacks."""

    magic: str
    text: str
    line: int


def cells_of(file: Path) -> Iterator[Cell]:
    """The cells of a notebook in their order; a plain script is one cell. Raises ConfigError."""
    text = read_text(file, hint="save the notebook again")
    if file.suffix != JUPYTER:
        yield from _source_cells(text)
        return
    try:
        yield from [_jupyter_cell("".join(cell["source"])) for cell in parse_json(text)["cells"] if _has_code(cell)]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file.name} is not a notebook of Jupyter: {error!r}.", hint="save it again") from error


def _source_cells(source: str) -> Iterator[Cell]:
    lines, begin = source.splitlines(), 0
    ends = [place for place, line in enumerate(lines) if CELL.match(line)]
    for end in (*ends, len(lines)):
        yield _cell(lines[begin:end], begin)
        begin = end + 1


def _cell(lines: list[str], begin: int) -> Cell:
    magics = [found[1] for line in lines if (found := MAGIC.match(line))]
    word, _, rest = magics[0].lstrip().partition(" ") if magics else ("", "", "")
    if not word.startswith("%"):
        return Cell("", "\n".join(lines), begin)
    return Cell(word.lstrip("%"), "\n".join([rest, *magics[1:]]).strip(), begin)


def _has_code(cell: Mapping[str, Any]) -> bool:
    return bool(cell["cell_type"] == "code")


def _jupyter_cell(text: str) -> Cell:
    """Its magics stand as they are; where it is in its file says nothing to a reader."""
    word, _, rest = text.lstrip().partition("\n")[0].partition(" ")
    if not word.startswith("%"):
        return Cell("", text, 0)
    return Cell(word.lstrip("%"), "\n".join([rest, *text.lstrip().split("\n")[1:]]).strip(), 0)


@dataclass(frozen=True)
class Notebook:
    """A notebook on its way: its file, how others are found from it, and what it may use."""

    file: Path
    around: Surroundings
    parameters: Mapping[str, str]
    find: FindFile

    def run(self) -> str | None:
        """From top to bottom; gives what it ended with, if it said so."""
        importable(self.file.parent)
        names = {**self.names(), "__name__": "__main__", "__file__": str(self.file)}
        try:
            self._run_cells(names)
        except NotebookEnd as ended:
            return ended.value
        return None

    def names(self) -> dict[str, Any]:
        """What every notebook finds there."""
        return {
            "spark": self.around.session(),
            "store": self.around.store,
            "dbutils": dbutils_of(self),
            "display": lambda shown: log.info("display", of=str(type(shown).__name__)),
            "displayHTML": lambda _shown: log.info("display", of="HTML"),
        }

    def _run_cells(self, names: dict[str, Any]) -> None:
        for cell in cells_of(self.file):
            if not cell.magic or cell.magic == "python":
                tree = compile("\n" * cell.line + cell.text, str(self.file), "exec", dont_inherit=True)
                exec(tree, names)  # noqa: S102 - it is the user's own notebook, which is to be run
            else:
                self._run_magic(cell, names)

    def _run_magic(self, cell: Cell, names: dict[str, Any]) -> None:
        if cell.magic == "run":
            self._run_other(cell, names)
        elif cell.magic == "sql":
            names["_sqldf"] = run_statements(self.around, cell.text, names["dbutils"].widgets.getAll())
        elif cell.magic in SILENT:
            log.debug("magic left out", magic=cell.magic, notebook=self.file.name)
        else:
            raise ConfigError(
                f"{self.file.name}, line {cell.line + 1}: %{cell.magic} is not run here.",
                hint="%run, %sql, %python, %md and %pip are known; put the rest into a task of its own",
            )

    def _run_other(self, cell: Cell, names: dict[str, Any]) -> None:
        """`%run ./other $day="monday"`: its cells in our place; what it is given are widgets while it runs."""
        path, *arguments = shlex.split(cell.text)
        unknown = [each for each in arguments if not ARGUMENT.fullmatch(each)]
        if unknown:
            raise ConfigError(
                f"{self.file.name}, line {cell.line + 1}: %run does not take {unknown[0]!r}.",
                hint='write %run ./other $name="value"',
            )
        widgets, given = names["dbutils"].widgets, dict(each[1:].split("=", 1) for each in arguments)
        before, widgets.given = widgets.given, {**widgets.given, **given}
        try:
            replace(self, file=self.find(str(self.file.parent / path)))._run_cells(names)
        finally:
            widgets.given = before


def has_main(file: Path) -> bool:
    """Whether the file leaves it to others to call its `main`: it neither does so itself, nor needs its cells run.

    What stands below `if` is not looked into: there it asks whether it is the program.
    """
    if file.suffix == JUPYTER:
        return False
    defined = {node.name for node in _tree(file).body if isinstance(node, ast.FunctionDef)}
    acts = any(cell.magic and cell.magic not in (*SILENT, "python") for cell in cells_of(file))
    return "main" in defined and not acts and not any(_calls_main(node) for node in _tree(file).body)


def needs(file: Path, name: str) -> bool:
    """Whether the file uses a name that it does not give itself, in a function or outside."""
    scopes = [symtable.symtable(read_text(file, hint="save the notebook again"), str(file), "exec")]
    for scope in scopes:
        scopes += scope.get_children()
    own = scopes[0].lookup(name).is_assigned() if name in scopes[0].get_identifiers() else False
    return not own and any(name in scope.get_identifiers() and scope.lookup(name).is_global() for scope in scopes)


def _tree(file: Path) -> ast.Module:
    """Magics are comments to Python."""
    return ast.parse(file.read_bytes(), filename=str(file))


def _calls_main(node: ast.stmt) -> bool:
    if isinstance(node, ast.If | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == "main" for called in calls)


def run_statements(around: Surroundings, sql: str, parameters: Mapping[str, str]) -> object:
    """Run one statement after the other, with `:name` for parameters; gives the last one's rows.

    Parameters are put in here: Spark leaves its own unbound where another parser stands before it, as Delta's does.
    """
    bound = with_parameters(sql, parameters)
    ends = [token.end for token in _tokens(bound) if token.token_type.name == "SEMICOLON"]
    begins = [0, *(end + 1 for end in ends)]
    statements = [bound[begin:end].strip() for begin, end in zip(begins, [*ends, len(bound)], strict=True)]
    rows: object = None
    for statement in filter(None, statements):
        rows = around.session().sql(statement)
    return rows


def with_parameters(sql: str, parameters: Mapping[str, str]) -> str:
    """The SQL with a text in the place of every `:name` that is given; `a:name` is a part of a variant."""
    tokens, bound = _tokens(sql), sql
    for place in reversed(range(len(tokens) - 1)):
        colon, name = tokens[place : place + 2]
        before = tokens[place - 1] if place else None
        is_part = before is not None and before.end + 1 == colon.start and before.token_type.name in VALUE_ENDS
        if colon.token_type.name == "COLON" and colon.end + 1 == name.start and name.text in parameters and not is_part:
            bound = f"{bound[: colon.start]}{text_literal(parameters[name.text])}{bound[name.end + 1 :]}"
    return bound


def _tokens(sql: str) -> list[Token]:
    import sqlglot  # without our bounds: a script of any length may be run, and is not looked into

    try:
        return sqlglot.tokenize(sql, read="spark")
    except sqlglot.errors.TokenError as error:
        raise ConfigError(
            "the SQL of the task cannot be read: a text or a name in it has no end.", hint="fix it"
        ) from error


def dbutils_of(notebook: Notebook) -> SimpleNamespace:
    """The part of `dbutils` that a task needs here; anything else is an AttributeError with its name."""
    around = notebook.around

    def run_other(path: str, timeout_seconds: float = 0, arguments: Mapping[str, str] | None = None) -> str | None:
        other = notebook.find(str(notebook.file.parent / path))
        return replace(notebook, file=other, parameters=dict(arguments or {})).run()

    def end(value: str = "") -> None:
        raise NotebookEnd(str(value))

    return SimpleNamespace(
        widgets=Widgets(dict(notebook.parameters)),
        notebook=SimpleNamespace(run=run_other, exit=end),
        jobs=SimpleNamespace(taskValues=TaskValueTools(around)),
        secrets=SimpleNamespace(get=secret),
        library=SimpleNamespace(restartPython=lambda: None),  # after %pip; what it installs is installed here already
    )


@dataclass
class Widgets:
    """`dbutils.widgets`: what the task was given, else what the notebook itself says."""

    given: Mapping[str, str]
    defaults: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, defaultValue: str = "", label: str | None = None) -> None:  # noqa: N803 - its name there
        self.defaults[name] = defaultValue

    def dropdown(self, name: str, defaultValue: str, choices: object, label: str | None = None) -> None:  # noqa: N803
        self.defaults[name] = defaultValue

    combobox = multiselect = dropdown

    def get(self, name: str) -> str:
        """Raises KeyError for a widget that nobody made."""
        if name not in self.getAll():
            raise KeyError(f"no widget '{name}': give it to the task, or make it with dbutils.widgets.text")
        return self.getAll()[name]

    def getArgument(self, name: str, defaultValue: str = "") -> str:  # noqa: N802, N803 - its name there
        return self.getAll().get(name, defaultValue)

    def getAll(self) -> dict[str, str]:  # noqa: N802 - its name there
        return {**self.defaults, **self.given}

    def remove(self, name: str) -> None:
        self.defaults.pop(name, None)

    def removeAll(self) -> None:  # noqa: N802 - its name there
        self.defaults.clear()


@dataclass(frozen=True)
class TaskValueTools:
    """`dbutils.jobs.taskValues`: what tasks of one run say to each other."""

    around: Surroundings

    def set(self, key: str, value: Json) -> None:
        self.around.values.set(self.around.task, key, value)

    def get(self, taskKey: str, key: str, default: Json = EMPTY, debugValue: Json = None) -> Json:  # noqa: N803
        """Raises KeyError for a value that was not said, unless there is a default."""
        with suppress(KeyError):
            return self.around.values.get(taskKey, key)
        if default is not EMPTY:
            return default
        raise KeyError(f"task '{taskKey}' has said no '{key}'")


def secret(scope: str, key: str) -> str:
    """A secret from the environment: `SCOPE_KEY` in capitals. Raises ConfigError."""
    name = re.sub(r"\W", "_", f"{scope}_{key}").upper()
    if name not in os.environ:
        raise ConfigError(f"secret '{key}' of scope '{scope}' is not there.", hint=f"set {name} in the environment")
    return os.environ[name]


def import_notebook(file: Path, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a module of the user's
    """The notebook as a module, which finds these names in it already."""
    import importlib.util

    name = f"_floodmark_task_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} cannot be imported.", hint="give it the ending .py")
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    sys.modules[name] = module  # pickling and dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module
