"""The project file as text: found, parsed, its variables filled in, with the line of everything in it.

What the fields mean is not known here (see `models`), so that commands which only need the store stay quick.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, VariableMissing
from floodmark.inputs import LARGEST_DOCUMENT, read_text
from floodmark.inputs.yaml import REFERENCE, Place, parse
from floodmark.logs import redact
from floodmark.stores.opening import PROJECT_STORE
from floodmark.stores.project import FILE_NAME

if TYPE_CHECKING:
    from floodmark.hwm import Json


_SHORTEST_SECRET = 4  # replacing "1" or "no" wherever they stand would make every message unreadable


def find_project(file: Path | None, start: Path) -> Path:
    """The file, if one is named; else floodmark.yaml in the start folder or the nearest folder above it."""
    if file is not None:
        if file.is_dir() and (file / FILE_NAME).is_file():
            file = file / FILE_NAME
        if not file.is_file():
            raise ConfigError(f"there is no project file '{file}'.", hint="floodmark init DIR writes one")
        return file.absolute()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise ConfigError(
        f"no {FILE_NAME} in this folder or above it.", hint="floodmark init writes one; --project FILE names one"
    )


def read_document(file: Path, variables: Variables, *, target: str | None = None) -> Document:
    """Parse the file. Raises ConfigError with file and line."""
    text = read_text(file, hint="--project FILE names one", largest=LARGEST_DOCUMENT)
    values, lines = parse(text, file.name)
    if not isinstance(values, dict):
        hint = "put the jobs below `jobs:`" if isinstance(values, list) else "floodmark init writes an example"
        raise ConfigError(f"{file.name}:1 has no fields.", hint=hint)
    document = Document(file, values, lines, variables, target)
    chosen_target(document)
    return document


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
    mistakes: tuple[ConfigError, ...] = ()
    """What is wrong with the files themselves, and what they name; they are left out of a whole document."""

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

    def expand(self, value: Json, place: Place, missing: dict[Place, VariableMissing] | None = None) -> Json:
        """The value with its variables filled in. Raises VariableMissing with its line, or notes it in `missing`."""
        if isinstance(value, str):
            return self._expand_text(value, place, missing)
        if isinstance(value, list):
            return [self.expand(item, (*place, position), missing) for position, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self.expand(inner, (*place, name), missing) for name, inner in value.items()}
        return value

    def _expand_text(self, text: str, place: Place, missing: dict[Place, VariableMissing] | None) -> str:
        try:
            return self.variables.expand(text, where=self.where(place)) if "${" in text else text
        except VariableMissing as error:
            if missing is None:
                raise
            missing[place] = error
            return text


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
    lines = read_text(path, what="env file", hint="check --env-file", largest=LARGEST_DOCUMENT).splitlines()
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
