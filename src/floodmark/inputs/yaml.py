"""YAML within bounds: safe tags alone, few levels, and no alias that grows into more values than anybody writes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.resolver import Resolver

from floodmark.errors import ConfigError
from floodmark.inputs import DEEPEST, LARGEST_DOCUMENT, MEBIBYTE

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What such a text can hold."""
Place: TypeAlias = "tuple[str | int, ...]"
"""Where a value stands in the file: ("jobs", 0, "sinks", 1, "path")."""
REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<default>[^}\n]*))?\}")
"""A variable of the environment, perhaps with a default; `$${` stands for a plain `${`."""
MOST_VALUES = 200_000
"""In one text, with every alias written out."""

_EVENTS = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_TAG = "tag:yaml.org,2002:"
_KINDS = (_TAG + "map", _TAG + "seq")


def parse(text: str, name: str) -> tuple[Json, dict[Place, int]]:
    """The values of the text, with their lines. Raises ConfigError with `name` and line.

    `${…}` may stand unquoted inside `{…}`, where YAML would take its brace for its own, so references are put aside
    while YAML reads. They come back unexpanded, and what a variable holds can never be taken for YAML.
    """
    aside = _Aside(f"\ue000{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}.")
    loader, node = _compose(REFERENCE.sub(aside.set_aside, text), name, _Loader)
    reader = _Reader(name, loader, aside)
    return reader.value(node, ()), reader.lines


@dataclass
class _Aside:
    """References that are put aside; the word in their place is made of the whole text, so no text can hold it."""

    word: str
    references: list[str] = field(default_factory=list)

    def set_aside(self, reference: re.Match[str]) -> str:
        self.references.append(reference[0])
        return f"{self.word}{len(self.references) - 1}\ue001"

    def restore(self, text: str) -> str:
        if self.word not in text:
            return text
        return re.sub(f"{re.escape(self.word)}(\\d+)\ue001", lambda mark: self.references[int(mark[1])], text)


def plain_values(text: str, name: str) -> Any:  # noqa: ANN401  (as yaml.safe_load)
    """As `yaml.safe_load`, with the kinds of YAML 1.1: what other programs wrote. Raises ConfigError with its line."""
    loader, node = _compose(text, name, BoundedLoader)
    try:
        return loader.construct_document(node) if node is not None else None
    except (ValueError, TypeError, yaml.MarkedYAMLError) as error:  # a number that Python refuses, an unhashable key
        where = getattr(error, "problem_mark", None)
        line = where.line + 1 if where else 1
        reason = getattr(error, "problem", None) or f"it holds a value that cannot be read ({error})"
        raise ConfigError(f"{name}:{line}: {reason}.", hint="fix that line") from None


class BoundedLoader(Composer, SafeConstructor, Resolver):
    """Composes the events of libyaml, where it is there, and refuses to go deeper than anybody writes."""

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._events = yaml.parse(text, Loader=_EVENTS)
        self._next = next(self._events, None)
        self._level = 0

    def check_event(self, *choices: type[yaml.Event]) -> bool:
        return isinstance(self._next, choices) if choices else self._next is not None

    def peek_event(self) -> yaml.Event | None:
        return self._next

    def get_event(self) -> yaml.Event | None:
        event, self._next = self._next, next(self._events, None)
        return event

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401  (as PyYAML)
        self._level += 1
        if self._level > DEEPEST and self._next is not None:
            raise _Refused(f"more than {DEEPEST} levels stand in each other", self._next.start_mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


class _Loader(BoundedLoader):
    """YAML 1.2's plain scalars: `on`, `no` and 2024-01-01 are text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML declares it without ClassVar)


_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_TAG + "int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"^[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(_TAG + "merge", re.compile(r"^<<$"), ["<"])


class _Refused(yaml.MarkedYAMLError):
    """A text that is YAML, and beyond a bound."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)


def _compose(text: str, name: str, kind: type[BoundedLoader]) -> tuple[BoundedLoader, yaml.Node | None]:
    if len(text) > LARGEST_DOCUMENT:
        raise ConfigError(f"{name} is larger than {LARGEST_DOCUMENT // MEBIBYTE} MiB.", hint="split it")
    try:
        loader = kind(text)
        node = loader.get_single_node()
        _Count().size_of(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = ":" if isinstance(error, _Refused) else " is not YAML:"
        raise ConfigError(f"{name}:{line}{what} {error.problem}.", hint=_yaml_hint(error, text)) from None
    except yaml.YAMLError:
        raise ConfigError(
            f"{name} is not YAML: it holds characters that YAML refuses.", hint="save it as UTF-8"
        ) from None
    return loader, node


def _yaml_hint(error: yaml.MarkedYAMLError, text: str) -> str:
    """What people usually meant; the parser names neither the tab nor the text that wants quotes."""
    lines = text.splitlines()
    line = lines[error.problem_mark.line] if error.problem_mark and error.problem_mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "YAML is indented by spaces: write them in place of the tab"
    if str(error.problem).startswith("mapping values are not allowed"):
        return "put a text that holds a colon and a space between quotes, or fix how far the line is indented"
    return "fix that line, or how far it is indented"


class _Size(NamedTuple):
    values: int
    height: int


@dataclass
class _Count:
    """How many values stand below each node once its aliases are written out, and in how many levels.

    Each node is looked at once, however many aliases it has.
    """

    sizes: dict[int, _Size | None] = field(default_factory=dict)
    """None, while the node is being counted."""

    def size_of(self, node: yaml.Node | None) -> _Size:
        if not isinstance(node, yaml.CollectionNode):
            return _Size(1, 0)
        if id(node) not in self.sizes:
            self.sizes[id(node)] = None
            self.sizes[id(node)] = self._measure(node)
        found = self.sizes[id(node)]
        if found is None:
            raise _Refused("an alias stands inside its own anchor", node.start_mark)
        return found

    def _measure(self, node: yaml.CollectionNode) -> _Size:
        inner = [self.size_of(each) for each in _children(node)]
        found = _Size(1 + sum(each.values for each in inner), 1 + max((each.height for each in inner), default=0))
        if found.values > MOST_VALUES:
            raise _Refused(f"with its aliases written out it holds more than {MOST_VALUES:,} values", node.start_mark)
        if found.height > DEEPEST:
            raise _Refused(f"with its aliases more than {DEEPEST} levels stand in each other", node.start_mark)
        return found


def _children(node: yaml.CollectionNode) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    return [each for pair in node.value for each in pair]


@dataclass
class _Reader:
    """Walks the nodes once and remembers their lines; a key that stands twice is refused."""

    name: str
    loader: BoundedLoader
    aside: _Aside
    lines: dict[Place, int] = field(default_factory=dict)

    def value(self, node: yaml.Node | None, place: Place) -> Json:
        if node is None:
            return None
        self.lines.setdefault(place, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _KINDS:
            raise self._error(node, f"{node.tag} is not a kind of value this file can hold")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, position)) for position, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> Json:
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "a field name has to be text")
            if key.value in first and key.tag != _TAG + "merge":
                said = f"field '{self.aside.restore(key.value)}' stands here again, after line {first[key.value]}"
                raise self._error(key, said)
            first[key.value] = key.start_mark.line + 1
        self._merge(node)
        values: dict[str, Json] = {}
        for key, inner in node.value:
            name = self.aside.restore(str(key.value))
            inside: Place = (*place, name)
            self.lines[inside] = key.start_mark.line + 1
            values[name] = self.value(inner, inside)
        return values

    def _merge(self, node: yaml.MappingNode) -> None:
        try:
            self.loader.flatten_mapping(node)
        except ConstructorError as error:
            raise self._error(node, f"{error.problem}") from None

    def _scalar(self, node: yaml.Node) -> Json:
        try:
            value: Json = self.loader.construct_object(node)
        except (ValueError, ConstructorError):
            raise self._error(node, f"{node.tag} is not a kind of value this file can hold") from None
        return self.aside.restore(value) if isinstance(value, str) else value

    def _error(self, node: yaml.Node, reason: str) -> ConfigError:
        return ConfigError(f"{self.name}:{node.start_mark.line + 1}: {reason}.", hint="fix that line")
