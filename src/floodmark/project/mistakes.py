"""What pydantic finds wrong with a project, as errors of ours: file, line, the nearest known name, never a value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, get_args

from floodmark.errors import ConfigError, FieldInvalid, UnknownField, UnknownKind
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.project.kinds import DURATION, NAME, PYTHON_NAME
from floodmark.project.models import Project

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from floodmark.hwm import Json
    from floodmark.inputs.yaml import Place
    from floodmark.project.file import Document


SHAPES = {
    DURATION: "should be a duration like 500ms, 5s, 10m, 1h or 90d",
    NAME: "should be a name of the letters a to z, digits, '_', '-' and '.'",
    PYTHON_NAME: "should be module:name",
}
OWNERS = {"jobs": "the job", "sinks": "the sink", "rules": "the rule"}
"""What the fields of a list's members are said to belong to."""
LIKELY = 0.8
"""A name so much like a known one was misspelt, even where another level has just this name."""
NAMED = ("jobs", "sinks")
"""What has names that may stand only once; pydantic knows of a second one, and not where it stands."""
NO_FIELDS = ("model_type", "model_attributes_type", "dict_type", "mapping_type")
FIXED_WITH_ANOTHER = ("missing", *NO_FIELDS)
WORDS = {
    "tuple_type": "has to be a list",
    "list_type": "has to be a list",
    "string_type": "has to be text",
    "string_too_short": "must not be empty",
    "dict_type": "has to be fields with values",
    "model_type": "has to be fields with values",
    "model_attributes_type": "has to be fields with values",
    "mapping_type": "has to be fields with values",
    "bool_type": "has to be true or false",
    "bool_parsing": "has to be true or false",
    "int_type": "has to be a whole number",
    "int_parsing": "has to be a whole number",
    "int_from_float": "has to be a whole number",
}
"""pydantic's names of mistakes, in words for people who have never heard of it."""


def mistakes(error: ValidationError, document: Document) -> list[tuple[Place, ConfigError]]:
    """One error for each mistake, with its place."""
    details: dict[Place, ErrorDetails] = {}
    for detail in _of_likeliest_members(error.errors(include_input=False), document.values):
        details.setdefault(_place(detail, document.values), detail)  # a union complains once for each of its members
    details = {place: detail for place, detail in details.items() if not _is_repeated_name(detail)}
    found = [(place, _mistake(place, detail, document)) for place, detail in details.items()]
    unknown = [(place, error) for place, error in found if isinstance(error, UnknownField)]
    fixed = {place for each in unknown for place in _fixed_with(*each, document.values)}
    return [each for each in found if details[each[0]]["type"] not in FIXED_WITH_ANOTHER or each[0] not in fixed]


def _fixed_with(place: Place, unknown: UnknownField, values: Json) -> Iterator[Place]:
    """What is right as well once this field is spelt right, or is where it belongs."""
    if unknown.nearest is not None:
        yield (*place[:-1], unknown.nearest)
        return
    yield (*place[:-1], _empty_field_above(place, values) or "")
    yield from ((*place[:end], place[-1]) for end in range(len(place) - 1))


def _of_likeliest_members(details: Sequence[ErrorDetails], values: Json) -> list[ErrorDetails]:
    """A union complains for each of its members: where fields were given, the one that minds the fewest was meant."""
    minded: dict[Place, Counter[str | int]] = {}
    for place, member in (
        each for detail in details for each in _members(detail, values) if each[0] != _place(detail, values)
    ):
        minded.setdefault(place, Counter())[member] += 1
    meant = {place: min(counts, key=counts.__getitem__) for place, counts in minded.items()}
    return [d for d in details if all(meant.get(place, member) == member for place, member in _members(d, values))]


def _members(detail: ErrorDetails, values: Json) -> Iterator[tuple[Place, str | int]]:
    """The members of unions on the way to a mistake, each with the place of its value."""
    place: list[str | int] = []
    steps = detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"]
    for step in steps:
        if _has(values, step):
            place.append(step)
            values = values[step]  # type: ignore[index]
        else:
            yield tuple(place), step


def _is_repeated_name(detail: ErrorDetails) -> bool:
    return detail["type"] == "value_error" and any(f"two {things} are called" in detail["msg"] for things in NAMED)


def repeated_names(document: Document) -> list[tuple[Place, ConfigError]]:
    """Jobs, and sinks of a job, that are called as an earlier one; each at its own place."""
    jobs = _listed(document.values.get("jobs"))
    names = [(("jobs", n, "name"), job.get("name")) for n, job in jobs]
    found = _repeated("jobs", names, document)
    for n, job in jobs:
        sinks = _listed(job.get("sinks"))
        places: list[Place] = [("jobs", n, "sinks", m, *(["name"] if "name" in sink else [])) for m, sink in sinks]
        called = [sink.get("name") or sink.get("type") for _, sink in sinks]
        found += _repeated("sinks", list(zip(places, called, strict=True)), document)
    return found


def _listed(values: Json) -> list[tuple[int, dict[str, Json]]]:
    return [(n, each) for n, each in enumerate(values) if isinstance(each, dict)] if isinstance(values, list) else []


def _repeated(things: str, names: Sequence[tuple[Place, Json]], document: Document) -> list[tuple[Place, ConfigError]]:
    first: dict[str, Place] = {}
    found: list[tuple[Place, ConfigError]] = []
    for place, name in names:
        if isinstance(name, str) and name in first:
            reason = f"is wrong: two {things} are called '{name}', the first at {document.where(first[name])}"
            hint = f"give it a name of its own, as in name: {name}_2"
            named = place if place[-1] == "name" else (*place, "name")
            found.append((place, invalid(named, document, where=document.where(place), reason=reason, hint=hint)))
        elif isinstance(name, str):
            first[name] = place
    return found


def _mistake(place: Place, detail: ErrorDetails, document: Document) -> ConfigError:
    error = _mistake_at(place, detail, document)
    begun = _value_cut_before(place, document.values)
    if begun is not None:
        error.hint = f"YAML ends the value of {begun} at its first comma: put it in quotes"
    return error


def _value_cut_before(place: Place, values: Json) -> str | None:
    """`{price: decimal(38,10), …}` has a field `10)` without a value; gives the field that it belongs to."""
    if not place or not isinstance(place[-1], str) or not re.search(r"[^\w.-]", place[-1]):
        return None
    fields = _value_at(values, place[:-1])
    if not isinstance(fields, dict) or fields.get(place[-1], "") is not None:
        return None
    earlier = list(fields)[: list(fields).index(place[-1])]
    return next((name for name in reversed(earlier) if fields[name] is not None), None)


def _mistake_at(place: Place, detail: ErrorDetails, document: Document) -> ConfigError:
    where = document.where(place)
    if detail["type"] == "extra_forbidden":
        return _unknown_field(place, where, detail["loc"], document)
    if detail["type"] == "union_tag_invalid":
        return _unknown_type(place, where, detail, document)
    if detail["type"] in ("missing", "union_tag_not_found"):
        missing = (*place, "type") if detail["type"] == "union_tag_not_found" else place
        return invalid(missing, document, where=where, reason="is missing")
    if detail["type"] == "literal_error":
        near = _nearest_words(place, detail, document)
        return invalid(place, document, where=where, reason=_without_value(detail), hint=did_you_mean(near))
    return invalid(place, document, where=where, reason=_without_value(detail), hint=_hint(place, detail))


def invalid(place: Place, document: Document, *, where: str, reason: str, hint: str = "") -> FieldInvalid:
    """A mistake at a place; people know a job by its name, and not by how many stand before it."""
    path, job = ".".join(map(str, place)) or "the file", _job_name(place, document.values)
    shown = f"job '{job}': {'.'.join(map(str, place[2:]))}" if job else ""
    return FieldInvalid(path, where=where, reason=reason, hint=hint, shown=shown)


def _job_name(place: Place, values: Json) -> str | None:
    """Of the job in which a field stands."""
    job = _value_at(values, place[:2]) if place[:1] == ("jobs",) and len(place) > len(("jobs", 0)) else None
    name = job.get("name") if isinstance(job, dict) else None
    return name if isinstance(name, str) else None


def _hint(place: Place, detail: ErrorDetails) -> str:
    """What to write instead, where the kind of mistake tells; empty where it does not."""
    if detail["type"] in ("list_type", "tuple_type"):
        return f"write {place[-1]}: [ … ], or each of them on a line of its own behind a dash"
    if detail["type"] == "string_type":
        return "put it in quotes"
    if detail["type"] in NO_FIELDS:
        return _fields_hint(place, detail)
    return str(getattr(detail.get("ctx", {}).get("error"), "hint", ""))


def _fields_hint(place: Place, detail: ErrorDetails) -> str:
    """The first fields that the value has to have, or may have."""
    models = _levels(detail["loc"])[-1][1]
    fields = [field for model in models[:1] for field in model.model_fields.items()]
    needed = [field.alias or name for name, field in fields if field.is_required()]
    first = needed[:2] or [field.alias or name for name, field in fields][:1]
    if not first:
        return ""
    written = ", ".join(f"{name}: …" for name in first)
    before = f"{place[-1]}: " if isinstance(place[-1], str) else "- "
    return f"write {before}{{{written}}}; floodmark schema shows every field"


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


def _without_value(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Input ").rstrip(".")
    if detail["type"] == "string_pattern_mismatch":
        return SHAPES.get(str(detail["ctx"]["pattern"]), message)
    if detail["type"] in WORDS:
        return WORDS[detail["type"]]
    if detail["type"] == "literal_error":
        return f"has to be {detail['ctx']['expected']}"
    return f"is wrong: {message.removeprefix('Value error, ')}" if detail["type"] == "value_error" else message


def _nearest_words(place: Place, detail: ErrorDetails, document: Document) -> list[str]:
    """The word that was meant, where it has to be one of a few; compared as the file spells it, variables unseen."""
    with suppress(LookupError, TypeError):  # a target lays values over those of the file
        value = _value_at(document.values, place)
        if isinstance(value, str):
            return nearest_names(value.lower(), re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
    return []


def _unknown_field(place: Place, where: str, location: Sequence[str | int], document: Document) -> UnknownField:
    """A field that another level has was indented too far, or not far enough; any other was misspelt."""
    name = str(place[-1])
    *outer, (_, own) = _levels(location[:-1])
    above = _empty_field_above(place, document.values)
    if above is not None and name in _field_names(_inner_models(own, above)):
        return UnknownField(name, where=where, known=(), place=f"it is a field of {above}: indent it below that")
    near = nearest_names(name, _field_names(own), likeness=LIKELY)
    owner = next((owner for owner, models in reversed(outer) if name in _field_names(models)), None)
    if owner is not None and not near:
        return UnknownField(name, where=where, known=(), place=f"it is a field of {owner}: indent it less")
    return UnknownField(name, where=where, known=_field_names(own))


def _levels(location: Sequence[str | int]) -> list[tuple[str, list[type[BaseModel]]]]:
    """Whose fields stand at each level on the way to a place, the file's first."""
    levels: list[tuple[str, list[type[BaseModel]]]] = [("the file", [Project])]
    for step in location:
        models = levels[-1][1]
        if isinstance(step, str) and step in _field_names(models):
            levels.append((OWNERS.get(step, f"`{step}`"), _inner_models(models, step)))
        elif isinstance(step, str):  # a member of a union
            levels[-1] = (levels[-1][0], _inner_models(models, step) or models)
    return levels


def _empty_field_above(place: Place, values: Json) -> str | None:
    """The nearest field before this one, in the same mapping, that was left without a value."""
    fields = _value_at(values, place[:-1])
    if not isinstance(fields, dict):
        return None
    earlier = list(fields)[: list(fields).index(str(place[-1]))]
    return next((name for name in reversed(earlier) if fields[name] is None), None)


def _field_names(models: Iterable[type[BaseModel]]) -> list[str]:
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def _inner_models(models: Iterable[type[BaseModel]], step: str) -> list[type[BaseModel]]:
    """Those that a field may hold; or, where the step is the name of a type, those of that type."""
    named = [(field.alias or name, field) for model in models for name, field in model.model_fields.items()]
    fields = [field.annotation for name, field in named if name == step]
    if fields:
        return [model for annotation in fields for model in _models_in(annotation)]
    return [model for model in models if step in get_args(getattr(model.model_fields.get("type"), "annotation", None))]


def _models_in(annotation: object) -> list[type[BaseModel]]:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _unknown_type(place: Place, where: str, detail: ErrorDetails, document: Document) -> ConfigError:
    """The type is shown as the file spells it: what a variable holds stays unseen."""
    known = [name.strip(" '") for name in str(detail["ctx"]["expected_tags"]).split(",")]
    thing, kind = "sink type" if "sinks" in place else "source type", str(_value_at(document.values, (*place, "type")))
    return UnknownKind(thing, kind, known=known, where=document.where((*place, "type")))


def _value_at(values: Json, place: Place) -> Json:
    for step in place:
        values = values[step]  # type: ignore[index]
    return values
