"""The store of whoever names none: the one that the project file of the working folder names, else a file there.

Of the project file only its store and namespace are read here; what it means is the business of `floodmark.project`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, VariableMissing
from floodmark.inputs import LARGEST_DOCUMENT, read_text
from floodmark.stores.opening import DEFAULT_STORE, PROJECT_STORE
from floodmark.stores.opening import open as open_store

if TYPE_CHECKING:
    import re

    from floodmark.hwm import Json
    from floodmark.stores.contract import MarkStore

FILE_NAME = "floodmark.yaml"


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


def _fields(file: Path) -> dict[str, Json]:
    """The top of the file, its references unexpanded."""
    from floodmark.inputs.yaml import parse

    try:
        values, _ = parse(read_text(file, hint="floodmark lint", largest=LARGEST_DOCUMENT), file.name)
    except ConfigError as error:
        raise ConfigError(f"{file} cannot be read: {error.message}", hint="floodmark lint says why") from error
    return values if isinstance(values, dict) else {}


def _expanded(text: object, file: Path, environment: Mapping[str, str]) -> str:
    from floodmark.inputs.yaml import REFERENCE

    def value(reference: re.Match[str]) -> str:
        if not reference["name"]:
            return "${"
        if reference["name"] not in environment and reference["default"] is None:
            raise VariableMissing(reference["name"], where=str(file))
        return environment.get(reference["name"], reference["default"] or "")

    return REFERENCE.sub(value, str(text))
