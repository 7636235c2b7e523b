"""From a parsed project file to its values: the project, everything that is wrong with it, and its JSON Schema.

What pydantic finds wrong becomes an error of ours here: file, line, the nearest known name, and never a value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from pydantic import ValidationError

from floodmark import __version__
from floodmark.errors import ConfigError, FieldInvalid, UnknownField, UnknownKind, VariableMissing
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.object_stores import SETTINGS
from floodmark.project.file import Document, chosen_target
from floodmark.project.folder import gather
from floodmark.project.kinds import DURATION, NAME, PYTHON_NAME
from floodmark.project.models import Project
from floodmark.project.targets import MOVES, move_tables

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from floodmark.hwm import Json
    from floodmark.inputs.yaml import Place


SHAPES = {
    DURATION: "should be a duration like 500ms, 5s, 10m, 1h or 90d",
    NAME: "should be a name of letters, digits, '_', '-' and '.'",
    PYTHON_NAME: "should be module:name",
}
NAMED = ("jobs", "sinks")
"""What has names that may stand only once; pydantic knows of a second one, and not where it stands."""
SCHEMA_FILE, JOB_SCHEMA_FILE = Path(".floodmark/schema.json"), Path(".floodmark/jobs.schema.json")
COMMENT_WITHIN = 300
"""The version stands within so many letters of the schema's beginning."""
REFERENCE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:[^}]*)?\}$"}


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


def load(document: Document) -> Project:
    """The project that the document describes, its target applied. Raises the first error that `examine` finds."""
    project, wrong = examine(document)
    if project is None:
        if len(wrong) > 1:
            sign = "" if wrong[0].hint.endswith("?") else ";"
            wrong[0].hint += f"{sign} there are {len(wrong)} mistakes, `floodmark lint` shows all"
        raise wrong[0]
    SETTINGS.remember(project.spark_settings())  # looks need them, and start no Spark
    return project


def examine(document: Document) -> tuple[Project | None, list[ConfigError]]:
    """The project, or everything that is wrong with its files."""
    project, wrong = examine_places(gather(document))
    return project, [error for _, error in wrong]


def examine_places(document: Document) -> tuple[Project | None, list[tuple[Place, ConfigError]]]:
    """As `examine`, of a whole document and with the place of each mistake; () for one that is of no field."""
    over = chosen_target(document)
    missing: dict[Place, VariableMissing] = {}
    values = {
        name: document.expand(value, (name,), missing) for name, value in document.values.items() if name != "targets"
    }
    place = ("targets", document.target or "")
    chosen = {name: document.expand(value, (*place, name), missing) for name, value in over.items()}
    values |= {name: value for name, value in chosen.items() if name not in MOVES}
    targets = document.values.get("targets", {})  # not expanded: another target's secrets may be missing
    values["targets"] = {**targets, document.target: chosen} if document.target and _is_map(targets) else targets
    wrong: list[tuple[Place, ConfigError]] = [((), error) for error in document.mistakes]
    try:
        project = Project.model_validate(values)
        if not wrong and not missing:
            return move_tables(project, document.target) if document.target else project, []
    except ConfigError as error:
        return None, [((), error)]
    except ValidationError as error:
        found = [*mistakes(error, document), *repeated_names(document)]
        own = [(place, each) for place, each in found if isinstance(each, UnknownField) or place not in missing]
        return None, [*wrong, *_in_order([*own, *missing.items()], document)]
    return None, [*wrong, *missing.items()]


def _in_order(wrong: Iterable[tuple[Place, ConfigError]], document: Document) -> list[tuple[Place, ConfigError]]:
    """By file, and by line."""
    files = list(dict.fromkeys([document.file.name, *document.homes.values()]))

    def order(mistake: tuple[Place, ConfigError]) -> tuple[int, int]:
        place = mistake[0]
        return files.index(document.file_of(place)), document.lines.get(place, document.lines.get(place[:-1], 0))

    return sorted(wrong, key=order)


def _is_map(value: Json) -> TypeGuard[dict[str, Json]]:
    return isinstance(value, dict)


def project_schema() -> dict[str, object]:
    """The schema; where a number or a text of some form is wanted, `${NAME}` is one too."""
    schema = {name: _with_references(part) for name, part in Project.model_json_schema().items()}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": f"floodmark {__version__}"}
    return {**head, **schema, "title": "Floodmark project"}


def job_file_schema() -> dict[str, object]:
    """Of a file in the folder jobs: a job, which needs no name there, a list of jobs, or jobs with defaults."""
    project = project_schema()
    definitions: dict[str, Any] = project["$defs"]  # type: ignore[assignment]
    job = definitions["JobModel"]
    own = {**job, "required": [name for name in job["required"] if name != "name"]}
    items = {"anyOf": [{"$ref": "#/$defs/JobModel"}, {"$ref": "#/$defs/PythonJobs"}]}
    several = {"type": "array", "items": items}
    fields = {"jobs": several, "defaults": {"$ref": "#/$defs/JobDefaults"}}
    whole = {"type": "object", "properties": fields, "required": ["jobs"], "additionalProperties": False}
    head = {name: project[name] for name in ("$schema", "$comment", "$defs")}
    return {**head, "title": "Floodmark jobs", "anyOf": [own, several, whole]}


def schema_files() -> dict[str, str]:
    """What editors are pointed at, by its path in the project's folder."""
    schemas = {SCHEMA_FILE: project_schema(), JOB_SCHEMA_FILE: job_file_schema()}
    return {str(file): json.dumps(schema, indent=2) + "\n" for file, schema in schemas.items()}


def renew_schemas(folder: Path) -> None:
    """Write the editors' schemas anew where another version of the program wrote them.

    Nothing is written where there is none, and a folder that cannot be written to keeps what it has.
    """
    old = [file for file in (SCHEMA_FILE, JOB_SCHEMA_FILE) if _is_of_another_version(folder / file)]
    texts = schema_files() if old else {}
    for file in old:
        with suppress(OSError):
            (folder / file).write_text(texts[str(file)], encoding="utf-8")


def _is_of_another_version(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as text:
            return f'"floodmark {__version__}"' not in text.read(COMMENT_WITHIN)
    except OSError:
        return False


def _with_references(node: object) -> object:
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = {name: _with_references(value) for name, value in node.items()}
    takes_no_reference = node.get("type") in ("integer", "boolean", "number") or isinstance(node.get("pattern"), str)
    return {"anyOf": [inner, REFERENCE]} if takes_no_reference else inner


def mistakes(error: ValidationError, document: Document) -> list[tuple[Place, ConfigError]]:
    """One error for each mistake, with its place."""
    details: dict[Place, ErrorDetails] = {}
    for detail in _of_likeliest_members(error.errors(include_input=False), document.values):
        details.setdefault(_place(detail, document.values), detail)  # a union complains once for each of its members
    details = {place: detail for place, detail in details.items() if not _is_repeated_name(detail)}
    found = [(place, _mistake(place, detail, document)) for place, detail in details.items()]
    misspelt = {(*place[:-1], error.nearest) for place, error in found if isinstance(error, UnknownField)}
    return [each for each in found if details[each[0]]["type"] != "missing" or each[0] not in misspelt]


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
            path = ".".join(map(str, place if place[-1] == "name" else (*place, "name")))
            found.append((place, FieldInvalid(path, where=document.where(place), reason=reason, hint=hint)))
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
        return _unknown_field(str(place[-1]), where, detail)
    if detail["type"] == "union_tag_invalid":
        return _unknown_type(place, where, detail, document)
    name = ".".join(map(str, place)) or "the file"
    if detail["type"] in ("missing", "union_tag_not_found"):
        missing = f"{name}.type" if detail["type"] == "union_tag_not_found" else name
        return FieldInvalid(missing, where=where, reason="is missing")
    if detail["type"] == "literal_error":
        near = _nearest_words(place, detail, document)
        return FieldInvalid(name, where=where, reason=_without_value(detail), hint=did_you_mean(near))
    is_list = detail["type"] in ("list_type", "tuple_type")
    hint = f"write {place[-1]}: [ … ], or each of them on a line of its own behind a dash" if is_list else ""
    return FieldInvalid(name, where=where, reason=_without_value(detail), hint=hint)


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


def _unknown_field(name: str, where: str, detail: ErrorDetails) -> ConfigError:
    return UnknownField(name, where=where, known=_known_fields(detail["loc"]))


def _known_fields(location: Sequence[str | int]) -> list[str]:
    """The fields of the model that refused: found by walking the models along the location."""
    models: list[type[BaseModel]] = [Project]
    for step in location[:-1]:
        if isinstance(step, str):
            models = _inner_models(models, step) or models
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def _inner_models(models: Iterable[type[BaseModel]], step: str) -> list[type[BaseModel]]:
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
