"""The store of whoever names none: the one that the project file of the working folder names, else a file there.

Of the project file only its store and namespace are read here; what it means is the business of `floodmark.project`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, VariableMissing
from floodmark.stores.opening import DEFAULT_STORE, PROJECT_STORE
from floodmark.stores.opening import open as open_store

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

FILE_NAME = "floodmark.yaml"
REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<default>[^}\n]*))?\}")
"""A variable of the environment, perhaps with a default; `$${` stands for a plain `${`."""
PUT_ASIDE = re.compile("\ue000(\\d+)\ue001")


def open_default(start: Path | None = None, environment: Mapping[str, str] = os.environ) -> MarkStore:
    """The store of the project that the folder belongs to, as its command line opens it; else `floodmark.db` there.

    So a stream or a mill of a project is seen by `floodmark marks`, `runs` and `health` though it runs by itself.
    """
    folder = (start or Path()).absolute()
    file = next((each / FILE_NAME for each in (folder, *folder.parents) if (each / FILE_NAME).is_file()), None)
    if file is None:
        return open_store(DEFAULT_STORE, folder=folder)
    values = _fields(file)
    store, namespace = values.get("store", PROJECT_STORE), values.get("namespace", "default")
    levels = store if isinstance(store, list) else [store]
    if not levels or not all(isinstance(each, str) for each in (*levels, namespace)):
        raise ConfigError(f"{file}: store and namespace have to be text.", hint=f"store: {PROJECT_STORE}")
    texts = [_expanded(each, file, environment) for each in levels]
    return open_store(
        texts if isinstance(store, list) else texts[0],
        namespace=_expanded(namespace, file, environment),
        folder=file.parent,
    )


def _fields(file: Path) -> dict[str, object]:
    """The top of the file. References are put aside: inside `{…}` YAML would take their braces for its own."""
    import yaml

    references: list[str] = []

    def put_aside(reference: re.Match[str]) -> str:
        references.append(reference[0])
        return f"\ue000{len(references) - 1}\ue001"

    def put_back(value: object) -> object:
        if isinstance(value, list):
            return [put_back(each) for each in value]
        return PUT_ASIDE.sub(lambda at: references[int(at[1])], value) if isinstance(value, str) else value

    try:
        values = yaml.load(REFERENCE.sub(put_aside, file.read_text(encoding="utf-8-sig")), yaml.BaseLoader)  # noqa: S506 (text, lists and mappings alone)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read.", hint="floodmark lint says why") from error
    return {name: put_back(value) for name, value in values.items()} if isinstance(values, dict) else {}


def _expanded(text: object, file: Path, environment: Mapping[str, str]) -> str:
    def value(reference: re.Match[str]) -> str:
        if not reference["name"]:
            return "${"
        if reference["name"] not in environment and reference["default"] is None:
            raise VariableMissing(reference["name"], where=str(file))
        return environment.get(reference["name"], reference["default"] or "")

    return REFERENCE.sub(value, str(text))
