"""Where things are: files and folders on this machine's disks, places behind a URL, and `module:name` in Python.

A place has several spellings: Hadoop's, the native drivers', and the one that marks keep. All of them are made here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote, urlsplit

from floodmark.errors import ConfigError, ModuleNeedsSpark
from floodmark.errors.causes import cause_of
from floodmark.errors.tracebacks import is_raised_by, modules_in
from floodmark.object_stores import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.fs import FileSystem

REMOTE = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
URL_WITHIN = re.compile(r"(?:^|/)[a-zA-Z][a-zA-Z0-9+.-]+:/{1,2}")
"""A URL, also behind a folder; path libraries make one slash of two."""
NATIVE_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "az", "wasbs": "az"}
"""Hadoop's names of object stores, and what native readers call the same."""
SPARK_SCHEMES = {"s3": "s3a", "gcs": "gs"}
"""The other way round: what Spark calls a store that people name as its native tools do."""
GLOB_SIGNS = frozenset("{}[]*?\\")


def is_remote(path: str) -> bool:
    """Whether the path is a URL with a host; a local one never is, see `path_in_marks`."""
    return REMOTE.match(path) is not None


def require_path(where: str | os.PathLike[str], what: str) -> str:
    """The place as text, if it is on a disk. Raises ConfigError for a URL: it would become a folder of that name."""
    text = os.fspath(where)
    if URL_WITHIN.search(text):
        raise ConfigError(f"{what} names a URL and not a path: {text}.", hint="give a path on this machine's disks")
    return text


def is_url(where: str) -> bool:
    """Whether the place has a scheme, also without a host: `file:/x`, `dbfs:/x`, `s3://bucket/x`."""
    return bool(urlsplit(where).scheme)


def absolute(where: str) -> str:
    """The place as Spark takes it: its JVM has a working folder of its own, so a relative path is made absolute."""
    return where if is_url(where) else os.path.abspath(os.path.expanduser(where))  # noqa: PTH100, PTH111


def path_in_marks(path: str | os.PathLike[str]) -> str:
    """The path as marks keep it: absolute for local disks, also if written `file:`; a URL without its last slash."""
    text = os.fspath(path)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    return text.rstrip("/") if is_remote(text) else os.path.abspath(text)  # noqa: PTH100 - resolve would follow links


def local_path(where: str) -> Path | None:
    """The absolute folder on a local disk, or None for a URL that leads elsewhere."""
    parts = urlsplit(where)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(where).expanduser().absolute() if not parts.scheme else None


def native_uri(where: str) -> str:
    """The place as a driver without Hadoop takes it."""
    local = local_path(where)
    if local is not None:
        return str(local)
    scheme, rest = where.split(":", 1)
    return f"{NATIVE_SCHEMES.get(scheme, scheme)}:{rest}"


def arrow_place(path: str) -> tuple[FileSystem, str]:
    """pyarrow's file system for a URL or a local path, and the path within it. Raises what pyarrow raises."""
    from pyarrow.fs import FileSystem, LocalFileSystem

    remote = REMOTE.match(path)
    if not remote:
        return LocalFileSystem(), path
    access = SETTINGS.s3(path)
    if access is not None:
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**access.arrow_options()), path[remote.end() :].rstrip("/")
    scheme = NATIVE_SCHEMES.get(remote[1].lower(), remote[1].lower())
    system, below = FileSystem.from_uri(f"{scheme}://{percent_encoded(path[remote.end() :], safe='/:@')}")
    return system, below.rstrip("/")


def literal_path(path: str) -> str:
    """The path for Spark's readers, which would otherwise take `[1]` in it for a pattern."""
    return "".join(f"\\{sign}" if sign in GLOB_SIGNS else sign for sign in path)


def quote(name: str, mark: str = "`") -> str:
    """A name as SQL takes it, whatever is in it; Spark quotes with backticks, most databases with `"`."""
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def quote_table(table: str) -> str:
    """A dotted name of Spark's with every part quoted; one that has backticks already is left as it is."""
    return table if "`" in table else ".".join(map(quote, table.split(".")))


def load_name(name: str, folder: Path) -> object:
    """The object that `module:name` stands for; modules beside the project file are found too."""
    module, _, attribute = name.partition(":")
    importable(folder)
    try:
        return reduce(getattr, attribute.split("."), importlib.import_module(module))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name}: there is no module '{error.name}'.", hint=f"put it into {folder}, or install it"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"{name}: {error}.", hint=f"define {attribute} in {module}") from error
    except Exception as error:
        cause = cause_of(error)
        if is_raised_by(error, "pyspark", "py4j"):
            raise ModuleNeedsSpark(module, reason=cause.reason, imported=modules_in(error)) from error
        raise ConfigError(f"{name}: importing it failed: {cause.reason}.", hint=f"fix {module}") from error


def missing_part(name: str, folder: Path) -> str | None:
    """What of `module:name` is not there, found without running the module; None if all is well."""
    module, _, attribute = name.partition(":")
    importable(folder)
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        return f"there is no module '{error.name}'"
    if spec is None:
        return f"there is no module '{module}'"
    if not spec.origin or not spec.origin.endswith(".py"):
        return None
    return _missing_in_source(spec.origin, attribute.split(".")[0])


def line_without_return(name: str, folder: Path) -> str | None:
    """file:line of a plain function that gives nothing back, found without running it; None if it does, or may."""
    module, _, attribute = name.partition(":")
    importable(folder)
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    tree = ast.parse(Path(spec.origin).read_bytes())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == attribute]
    if len(found) != 1 or found[0].decorator_list or any(_gives_back(node) for node in _own_nodes(found[0])):
        return None
    return f"{Path(spec.origin).name}:{found[0].lineno}"


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Its statements and expressions, without those of functions that stand inside it."""
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(node)


def _gives_back(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Return) and node.value is not None)


def importable(folder: Path) -> None:
    """Let modules beside the project file be imported, as `python` does for a script's folder."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _missing_in_source(file: str, name: str) -> str | None:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except SyntaxError as error:
        return f"line {error.lineno} is not Python"
    names = {defined for node in tree.body for defined in _defined(node)}
    return None if {name, "*"} & names else f"nothing called '{name}' is defined there"


def _defined(node: ast.AST) -> set[str]:
    """The names a statement binds; `*` if it may be any. Definitions inside `if` and `try` count."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    own = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
    return own.union(*(_defined(inner) for inner in ast.iter_child_nodes(node)))


def spark_path(path: str) -> str:
    """The path for Spark's reader, which would otherwise take `[1]` for a pattern and `/in` for a path on HDFS."""
    literal = literal_path(path)
    if not is_url(path):
        return f"file://{literal}"
    scheme, _, rest = literal.partition(":")
    return f"{SPARK_SCHEMES.get(scheme, scheme)}:{rest}"
