"""The project file as text: found, parsed, its variables filled in, with the line of everything in it.

What the fields mean is not known here (see `models`), so that commands which only need the store stay quick.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # libyaml's own: hundreds of files are read in a moment
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

from floodmark.errors import ConfigError, VariableMissing
from floodmark.logs import redact
from floodmark.stores.opening import PROJECT_STORE
from floodmark.stores.project import FILE_NAME, REFERENCE

if TYPE_CHECKING:
    from floodmark.hwm import Json


_SHORTEST_SECRET = 4  # replacing "1" or "no" wherever they stand would make every message unreadable
Place: TypeAlias = "tuple[str | int, ...]"
"""Where a value stands in the file: ("jobs", 0, "sinks", 1, "path")."""
_REFERENCE_MARK = re.compile("\ue000(\\d+)\ue001")
_TAG = "tag:yaml.org,2002:"


def find_project(file: Path | None, start: Path) -> Path:
    """The file, if one is named; else floodmark.yaml in the start folder or the nearest folder above it."""
    if file is not None:
        if not file.is_file():
            raise ConfigError(f"there is no project file {file}.", hint="floodmark init DIR writes one")
        return file.absolute()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise ConfigError(
        f"no {FILE_NAME} in this folder or above it.", hint="floodmark init writes one; --project FILE names one"
    )


def read_document(file: Path, variables: Variables, *, target: str | None = None) -> Document:
    """Parse the file. Raises ConfigError with file and line."""
    values, lines = parse(read_text(file), file.name)
    if not isinstance(values, dict):
        raise ConfigError(f"{file.name}:1 has no fields.", hint="floodmark init writes an example")
    document = Document(file, values, lines, variables, target)
    chosen_target(document)
    return document


def read_text(file: Path) -> str:
    """What stands in a file of the project. Raises ConfigError."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} cannot be read: {error}.", hint="save it as UTF-8 text") from error


@dataclass(frozen=True)
class Document:
    """A parsed project file: its values with the variables still unfilled, and the line of each of them.

    Once it is whole (see `folder`), the files that it includes are part of it, and `homes` says what came from where.
    """

    file: Path
    values: dict[str, Json]
    lines: Mapping[Place, int]
    variables: Variables
    target: str | None = None
    homes: Mapping[Place, str] = field(default_factory=dict)
    is_whole: bool = False

    @property
    def folder(self) -> Path:
        """What relative paths are relative to."""
        return self.file.parent

    def where(self, place: Place) -> str:
        """file:line of a value, or of the nearest thing around it that is really there."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.file_of(place)}:{self.lines.get(place, 1)}"

    def file_of(self, place: Place) -> str:
        """The name of the file in which a value stands, as seen from the project's folder."""
        outer = (place[:end] for end in range(len(place), -1, -1))
        return next((self.homes[each] for each in outer if each in self.homes), self.file.name)

    def expand(self, value: Json, place: Place) -> Json:
        """The value with its variables filled in. Raises VariableMissing with file and line."""
        if isinstance(value, str):
            return self.variables.expand(value, where=self.where(place))
        if isinstance(value, list):
            return [self.expand(item, (*place, position)) for position, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self.expand(inner, (*place, name)) for name, inner in value.items()}
        return value


def chosen_target(document: Document) -> dict[str, Json]:
    """The fields that --target puts over those of the file, unexpanded. Raises ConfigError if there is none."""
    if document.target is None:
        return {}
    targets = document.values.get("targets")
    known = list(targets) if isinstance(targets, dict) else []
    if not isinstance(targets, dict) or document.target not in targets:
        raise ConfigError(
            f"no target '{document.target}' in {document.file.name}.", hint=f"one of: {', '.join(known) or '(none)'}"
        )
    fields = targets[document.target]
    return fields if isinstance(fields, dict) else {}


@dataclass(frozen=True)
class StoreSettings:
    """Where the marks are: all that `marks` and `runs` need of a project."""

    store: str | tuple[str, ...]
    namespace: str
    folder: Path


def store_settings(document: Document) -> StoreSettings:
    """The store and namespace of the file, with the target's over them."""
    over = chosen_target(document)

    def field(name: str, default: Json) -> Json:
        if name in over and document.target is not None:
            return document.expand(over[name], ("targets", document.target, name))
        return document.expand(document.values.get(name, default), (name,))

    store, namespace = field("store", PROJECT_STORE), field("namespace", "default")
    levels = store if isinstance(store, list) else [store]
    if not levels or not all(isinstance(level, str) for level in levels):
        raise ConfigError(f"{document.where(('store',))}: store has to be text or a list of text.", hint=PROJECT_STORE)
    if not isinstance(namespace, str) or not namespace:
        raise ConfigError(f"{document.where(('namespace',))}: namespace has to be text.", hint="namespace: prod")
    text = tuple(map(str, levels)) if isinstance(store, list) else str(store)
    return StoreSettings(text, namespace, document.folder)


@dataclass(frozen=True)
class Variables:
    """The environment as a project file sees it; it remembers which values it handed out."""

    values: Mapping[str, str]
    _handed_out: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def expand(self, text: str, *, where: str) -> str:
        """The text with every reference replaced; `$${` stands for a plain `${`. Raises VariableMissing."""

        def value(reference: re.Match[str]) -> str:
            return self._value_of(reference, where) if reference["name"] else "${"

        return REFERENCE.sub(value, text)

    def scrub(self, text: str) -> str:
        """The text with every value that was handed out shown as its name again, and passwords as ***."""
        for value, name in sorted(self._handed_out.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(value, f"${{{name}}}")
        return redact(text)

    def _value_of(self, reference: re.Match[str], where: str) -> str:
        name, default = reference["name"], reference["default"]
        if name not in self.values:
            if default is None:
                raise VariableMissing(name, where=where)
            return str(default)
        value = self.values[name]
        if len(value) >= _SHORTEST_SECRET:
            self._handed_out[value] = name
        return value


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=value lines, as `docker run --env-file` and most shells write them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"env file {path} cannot be read: {error.strerror}.", hint="check --env-file") from error
    return dict(_pair(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if _says_something(line))


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _pair(line: str, where: str) -> tuple[str, str]:
    name, equals, value = line.strip().removeprefix("export ").partition("=")
    if not equals or not name.strip().isidentifier():
        raise ConfigError(f"{where} is not NAME=value.", hint="write one NAME=value per line")
    value = value.strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return name.strip(), value[1:-1] if quoted else value


def parse(text: str, name: str) -> tuple[Json, dict[Place, int]]:
    """The values of the text, with their lines. Raises ConfigError with `name` and line.

    `${…}` may stand unquoted inside `{…}`, where YAML would take its brace for its own, so references are put aside
    while YAML reads. They come back unexpanded, and what a variable holds can never be taken for YAML.
    """
    references: list[str] = []

    def put_aside(reference: re.Match[str]) -> str:
        references.append(reference[0])
        return f"\ue000{len(references) - 1}\ue001"

    try:
        loader = _Loader(REFERENCE.sub(put_aside, text))
        reader = _Reader(name, loader, references)
        return reader.value(loader.get_single_node(), (), ()), reader.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line} is not YAML: {error.problem}.", hint="fix that line") from None
    except yaml.YAMLError:
        raise ConfigError(
            f"{name} is not YAML: it holds characters that YAML refuses.", hint="save it as UTF-8"
        ) from None


class _Loader(SafeLoader):
    """Safe tags alone, and YAML 1.2's plain scalars: `on`, `no` and 2024-01-01 are text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML declares it without ClassVar)


_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_TAG + "int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"^[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(_TAG + "merge", re.compile(r"^<<$"), ["<"])


@dataclass
class _Reader:
    """Walks the nodes once and remembers their lines; a key that stands twice, and a node inside itself (an alias of
    its own anchor), is refused."""

    name: str
    loader: _Loader
    references: list[str]
    lines: dict[Place, int] = field(default_factory=dict)

    def value(self, node: yaml.Node | None, place: Place, around: tuple[yaml.Node, ...]) -> Json:
        if node is None:
            return None
        if any(node is outer for outer in around):
            raise self._error(node, "an alias stands inside its own anchor")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in (_TAG + "map", _TAG + "seq"):
            raise self._error(node, f"{node.tag} is not a kind of value this file can hold")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, (*around, node))
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self.value(item, (*place, position), (*around, node)) for position, item in items]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, place: Place, around: tuple[yaml.Node, ...]) -> Json:
        own = [key.value for key, _ in node.value if key.tag != _TAG + "merge"]
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "a field name has to be text")
            if own.count(key.value) > 1:
                raise self._error(key, f"field '{self._with_references(key.value)}' stands here twice")
        self.loader.flatten_mapping(node)
        values: dict[str, Json] = {}
        for key, inner in node.value:
            name = self._with_references(str(key.value))
            inside: Place = (*place, name)
            self.lines[inside] = key.start_mark.line + 1
            values[name] = self.value(inner, inside, around)
        return values

    def _scalar(self, node: yaml.Node) -> Json:
        try:
            value: Json = self.loader.construct_object(node)
        except (ValueError, yaml.constructor.ConstructorError):
            raise self._error(node, f"{node.tag} is not a kind of value this file can hold") from None
        return self._with_references(value) if isinstance(value, str) else value

    def _with_references(self, text: str) -> str:
        return _REFERENCE_MARK.sub(lambda mark: self.references[int(mark[1])], text)

    def _error(self, node: yaml.Node, reason: str) -> ConfigError:
        return ConfigError(f"{self.name}:{node.start_mark.line + 1}: {reason}.", hint="fix that line")
