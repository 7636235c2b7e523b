"""The project file as text: found, parsed, its variables filled in, with the line of everything in it.

What the fields mean is not known here (see project.py), so that commands which only need the store stay quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.jobs.variables import Variables
from floodmark.jobs.yaml_text import Place, parse

if TYPE_CHECKING:
    from floodmark.hwm import Json

FILE_NAME = "floodmark.yaml"
DEFAULT_STORE = "sqlite:///state/marks.db"


@dataclass(frozen=True)
class Document:
    """A parsed project file: its values with the variables still unfilled, and the line of each of them."""

    file: Path
    values: dict[str, Json]
    lines: Mapping[Place, int]
    variables: Variables
    target: str | None = None

    @property
    def folder(self) -> Path:
        """What relative paths are relative to."""
        return self.file.parent

    def where(self, place: Place) -> str:
        """file:line of a value, or of the nearest thing around it that is really there."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.file.name}:{self.lines.get(place, 1)}"

    def expand(self, value: Json, place: Place) -> Json:
        """The value with its variables filled in. Raises VariableMissing with file and line."""
        if isinstance(value, str):
            return self.variables.expand(value, where=self.where(place))
        if isinstance(value, list):
            return [self.expand(item, (*place, position)) for position, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self.expand(inner, (*place, name)) for name, inner in value.items()}
        return value


def find_project(named: Path | None, start: Path) -> Path:
    """The file that was named, else floodmark.yaml in the start folder or the nearest folder above it."""
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no project file {named}.", hint="floodmark init DIR writes one")
        return named.absolute()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise ConfigError(
        f"no {FILE_NAME} in this folder or above it.", hint="floodmark init writes one; --project FILE names one"
    )


def read_document(file: Path, variables: Variables, *, target: str | None = None) -> Document:
    """Parse the file. Raises ConfigError with file and line."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} cannot be read: {error}.", hint="save it as UTF-8 text") from error
    values, lines = parse(text, file.name)
    if not isinstance(values, dict):
        raise ConfigError(f"{file.name}:1 has no fields.", hint="floodmark init writes an example")
    document = Document(file, values, lines, variables, target)
    chosen_target(document)
    return document


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

    store, namespace = field("store", DEFAULT_STORE), field("namespace", "default")
    levels = store if isinstance(store, list) else [store]
    if not levels or not all(isinstance(level, str) for level in levels):
        raise ConfigError(f"{document.where(('store',))}: store has to be text or a list of text.", hint=DEFAULT_STORE)
    if not isinstance(namespace, str) or not namespace:
        raise ConfigError(f"{document.where(('namespace',))}: namespace has to be text.", hint="namespace: prod")
    opened = tuple(map(str, levels)) if isinstance(store, list) else str(store)
    return StoreSettings(opened, namespace, document.folder)
