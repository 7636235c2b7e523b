"""YAML as a project file uses it: safe tags only, dates and yes/no stay text, no key twice, every line remembered."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import yaml

from floodmark.errors import ConfigError
from floodmark.jobs.variables import REFERENCE

if TYPE_CHECKING:
    from floodmark.hwm import Json

Place: TypeAlias = "tuple[str | int, ...]"
"""Where a value stands in the file: ("jobs", 0, "sinks", 1, "path")."""

_KEPT = re.compile("\ue000(\\d+)\ue001")
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain scalars: `on`, `no` and 2024-01-01 are text, as everybody but YAML 1.1 thinks."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML declares it without ClassVar)


_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_TAG + "int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"^[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(_TAG + "merge", re.compile(r"^<<$"), ["<"])


def parse(text: str, name: str) -> tuple[Json, dict[Place, int]]:
    """The values of the text, with their lines. Raises ConfigError with `name` and line.

    `${…}` may stand unquoted inside `{…}`, where YAML would take its brace for its own, so references are put aside
    while YAML reads. They come back unexpanded, and what a variable holds can never be taken for YAML.
    """
    kept: list[str] = []

    def put_aside(reference: re.Match[str]) -> str:
        kept.append(reference[0])
        return f"\ue000{len(kept) - 1}\ue001"

    try:
        loader = _Loader(REFERENCE.sub(put_aside, text))
        reader = _Reader(name, loader, kept)
        return reader.value(loader.get_single_node(), (), ()), reader.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line} is not YAML: {error.problem}.", hint="mend that line") from None
    except yaml.YAMLError:
        raise ConfigError(
            f"{name} is not YAML: it holds characters that YAML refuses.", hint="save it as UTF-8"
        ) from None


@dataclass
class _Reader:
    """Walks the nodes once; a node inside itself (an alias of its own anchor) is refused."""

    name: str
    loader: _Loader
    kept: list[str]
    lines: dict[Place, int] = field(default_factory=dict)

    def value(self, node: yaml.Node | None, place: Place, around: tuple[yaml.Node, ...]) -> Json:
        if node is None:
            return None
        if any(node is outer for outer in around):
            raise self._refused(node, "an alias stands inside its own anchor")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in (_TAG + "map", _TAG + "seq"):
            raise self._refused(node, f"{node.tag} is not a kind of value this file can hold")
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
                raise self._refused(key, "a field name has to be text")
            if own.count(key.value) > 1:
                raise self._refused(key, f"field '{self._given_back(key.value)}' stands here twice")
        self.loader.flatten_mapping(node)
        values: dict[str, Json] = {}
        for key, inner in node.value:
            name = self._given_back(str(key.value))
            inside: Place = (*place, name)
            self.lines[inside] = key.start_mark.line + 1
            values[name] = self.value(inner, inside, around)
        return values

    def _scalar(self, node: yaml.Node) -> Json:
        try:
            value: Json = self.loader.construct_object(node)
        except (ValueError, yaml.constructor.ConstructorError):
            raise self._refused(node, f"{node.tag} is not a kind of value this file can hold") from None
        return self._given_back(value) if isinstance(value, str) else value

    def _given_back(self, text: str) -> str:
        return _KEPT.sub(lambda found: self.kept[int(found[1])], text)

    def _refused(self, node: yaml.Node, reason: str) -> ConfigError:
        return ConfigError(f"{self.name}:{node.start_mark.line + 1}: {reason}.", hint="mend that line")
