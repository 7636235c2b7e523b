"""The configuration as it is walked: its components with their lines, and the notes that are taken on the way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from floodmark.inputs.yaml import Place

BESIDE = frozenset({"label", "processors"})
"""What may stand beside the name of a component."""
_OBJECT = re.compile(r"\s*root\s*=\s*\{\s*\"?(?P<field>\w+)\"?\s*:\s*(?P<value>[^{}]*?)\s*,?\s*\}\s*")
_GO_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Note:
    """Something that is not the same, and where it stood."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True)
class Component:
    """An input, processor, output or cache: its type, its settings, and its own processors."""

    type: str
    settings: Any
    place: Place
    around: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, name: str, default: object = None) -> Any:  # noqa: ANN401  (what YAML holds)
        """One of its settings; none if it is no map."""
        return self.settings.get(name, default) if isinstance(self.settings, dict) else default

    def at(self, *names: str | int) -> Place:
        """The place of a setting."""
        return (*self.place, self.type, *names)


@dataclass(frozen=True)
class Configuration:
    """A parsed configuration, and the notes on it so far."""

    name: str
    values: dict[str, Any]
    lines: Mapping[Place, int]
    notes: list[Note] = field(default_factory=list)

    def where(self, place: Place) -> str:
        """file:line of a value, or of the nearest thing around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.name}:{self.lines.get(place, 1)}"

    def note(self, place: Place, message: str) -> None:
        """Keep what the reader has to know."""
        self.notes.append(Note(self.where(place), message))

    def error(self, place: Place, message: str, *, hint: str) -> ConfigError:
        """What stops the translation, with file and line."""
        return ConfigError(f"{self.where(place)}: {message}.", hint=hint)

    def component(self, value: object, place: Place) -> Component:
        """The one component that a map names; raises ConfigError."""
        types = [name for name in value if name not in BESIDE] if isinstance(value, dict) else []
        if len(types) != 1 or not isinstance(value, dict):
            raise self.error(
                place,
                f"there has to be one component here, and there are {len(types)}",
                hint="name it, as in stdout: {}",
            )
        return Component(types[0], value[types[0]], place, value)

    def components(self, values: object, place: Place) -> Iterator[Component]:
        """Those of a list, in order; a `try` stands for what is in it."""
        if values is not None and not isinstance(values, list):
            raise self.error(place, "there has to be a list here", hint="begin each component with `- `")
        for position, value in enumerate(values or ()):
            found = self.component(value, (*place, position))
            if found.type == "try":
                yield from self.components(found.settings, found.at())
            else:
                yield found

    def text(self, component: Component, name: str) -> str:
        """A setting that has to be there, as text; raises ConfigError."""
        value = component.setting(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return str(value)
        problem = f"has no '{name}'" if value in (None, "") else f"has a '{name}' that is no text"
        raise self.error(component.at(name), f"{component.type} {problem}", hint=f"{name}: …")

    def texts(self, component: Component, name: str) -> list[str]:
        """A setting that is a list of texts; raises ConfigError."""
        return self.listed_texts(component.setting(name), component.at(name))

    def listed_texts(self, value: object, place: Place) -> list[str]:
        """A list of texts that is not empty; raises ConfigError."""
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            return value
        raise self.error(place, "there has to be a list of texts here", hint="[one, two]")

    def fields(self, value: object, place: Place) -> dict[str, Any]:
        """A map, or an empty one if nothing is there; raises ConfigError."""
        if value is None or isinstance(value, dict):
            return value or {}
        raise self.error(place, "there has to be a map here", hint="name: value")

    def note_settings(self, component: Component, known: Mapping[str, str | None]) -> None:
        """A note for every setting that is not taken over: with the words that are known for it, or with none."""
        for name in component.settings if isinstance(component.settings, dict) else ():
            words = known.get(name, "it has no counterpart and is left out")
            if words is not None:
                self.note(component.at(name), f"{component.type}.{name}: {words}")


def assignment(mapping: object) -> str:
    """A mapping of one field as it is mostly written: `root = {"seq": -1}` as `root.seq = -1`."""
    found = _OBJECT.fullmatch(str(mapping))
    return f"root.{found['field']} = {found['value']}" if found else str(mapping)


def duration(text: str) -> str | None:
    """A duration of Go, as 1m30s, in the words of a project file; None if it is none."""
    if not text or _GO_DURATION.sub("", text):
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _GO_DURATION.findall(text))
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
