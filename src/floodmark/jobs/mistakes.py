"""What pydantic found wrong, told as our own errors: file, line, the nearest known name, and never a value."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from floodmark.errors import ConfigError, FieldInvalid, UnknownField, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from floodmark.hwm import Json
    from floodmark.jobs.project_file import Document
    from floodmark.jobs.yaml_text import Place


def mistakes(error: ValidationError, document: Document) -> list[ConfigError]:
    """One error for each mistake, in the order of the file."""
    found: dict[Place, ErrorDetails] = {}
    for detail in error.errors(include_input=False):
        found.setdefault(_place(detail, document.values), detail)  # a union complains once for each of its members
    in_order = sorted(found, key=lambda place: document.lines.get(place, document.lines.get(place[:-1], 0)))
    return [_mistake(place, found[place], document) for place in in_order]


def _place(detail: ErrorDetails, values: Json) -> Place:
    """pydantic's location without the names of union members, which stand in no file."""
    place: list[str | int] = []
    for step in detail["loc"]:
        if _has(values, step):
            place.append(step)
            values = values[step]  # type: ignore[index]
    return (*place, detail["loc"][-1]) if detail["type"] == "missing" else tuple(place)


def _has(values: Json, step: str | int) -> bool:
    if isinstance(values, dict):
        return step in values
    return isinstance(values, list) and isinstance(step, int) and step < len(values)


def _mistake(place: Place, detail: ErrorDetails, document: Document) -> ConfigError:
    where = document.where(place)
    if detail["type"] == "extra_forbidden":
        return _unknown_field(str(place[-1]), where, detail)
    if detail["type"] == "union_tag_invalid":
        return _unknown_type(place, where, detail, document)
    name = ".".join(map(str, place)) or "the file"
    if detail["type"] in ("missing", "union_tag_not_found"):
        missing = f"{name}.type" if detail["type"] == "union_tag_not_found" else name
        return FieldInvalid(missing, where=where, reason="is missing")
    return FieldInvalid(name, where=where, reason=_without_value(detail))


def _without_value(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Input ").rstrip(".")
    if detail["type"] == "string_pattern_mismatch":
        return _shape(str(detail["ctx"]["pattern"])) or message
    return f"is wrong: {message.removeprefix('Value error, ')}" if detail["type"] == "value_error" else message


def _shape(pattern: str) -> str | None:
    from floodmark.jobs.kinds import DURATION, NAME, PYTHON_NAME

    return {
        DURATION: "should be a duration like 500ms, 5s, 10m, 1h or 90d",
        NAME: "should be a name of letters, digits, '_', '-' and '.'",
        PYTHON_NAME: "should be module:name",
    }.get(pattern)


def _unknown_field(name: str, where: str, detail: ErrorDetails) -> ConfigError:
    nearest = get_close_matches(name, _known_fields(detail["loc"]), n=1, cutoff=0.5)
    return UnknownField(name, where=where, nearest=nearest[0] if nearest else None)


def _unknown_type(place: Place, where: str, detail: ErrorDetails, document: Document) -> ConfigError:
    """The type is shown as the file spells it: what a variable holds stays unseen."""
    known = [name.strip(" '") for name in str(detail["ctx"]["expected_tags"]).split(",")]
    thing = f"{'sink' if 'sinks' in place else 'source'} type at {document.where((*place, 'type'))}:"
    return UnknownKind(thing, str(_spelled(document.values, (*place, "type"))), known=known)


def _spelled(values: Json, place: Place) -> Json:
    for step in place:
        values = values[step]  # type: ignore[index]
    return values


def _known_fields(location: Sequence[str | int]) -> list[str]:
    """The fields of the model that refused: found by walking the models along the location."""
    from floodmark.jobs.project import Project

    models: list[type[BaseModel]] = [Project]
    for step in location[:-1]:
        if isinstance(step, str):
            models = _inner_models(models, step) or models
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def _inner_models(models: Iterable[type[BaseModel]], step: str) -> list[type[BaseModel]]:
    fields = [model.model_fields[step].annotation for model in models if step in model.model_fields]
    if fields:
        return [model for annotation in fields for model in _models_in(annotation)]
    return [model for model in models if step in get_args(getattr(model.model_fields.get("type"), "annotation", None))]


def _models_in(annotation: object) -> list[type[BaseModel]]:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
