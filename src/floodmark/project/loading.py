"""From a parsed project file to its values: the project, everything that is wrong with it, and its JSON Schema.

What pydantic finds wrong becomes an error of ours here: file, line, the nearest known name, and never a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from pydantic import ValidationError

from floodmark import __version__
from floodmark.errors import ConfigError, FieldInvalid, UnknownField, UnknownKind
from floodmark.project.file import Document, chosen_target
from floodmark.project.folder import gather
from floodmark.project.kinds import DURATION, NAME, PYTHON_NAME
from floodmark.project.models import Project
from floodmark.project.targets import MOVES, move_tables

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from floodmark.hwm import Json
    from floodmark.project.file import Place


SHAPES = {
    DURATION: "should be a duration like 500ms, 5s, 10m, 1h or 90d",
    NAME: "should be a name of letters, digits, '_', '-' and '.'",
    PYTHON_NAME: "should be module:name",
}
SCHEMA_FILE, JOB_SCHEMA_FILE = Path(".floodmark/schema.json"), Path(".floodmark/jobs.schema.json")
COMMENT_WITHIN = 300
"""The version stands within so many letters of the schema's beginning."""
REFERENCE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:[^}]*)?\}$"}


def load(document: Document) -> Project:
    """The project that the document describes, its target applied. Raises the first error that `examine` finds."""
    project, wrong = examine(document)
    if project is None:
        raise wrong[0]
    return project


def examine(document: Document) -> tuple[Project | None, list[ConfigError]]:
    """The project, or everything that is wrong with its file."""
    over = chosen_target(document)
    try:
        document = gather(document)
        values = {name: document.expand(value, (name,)) for name, value in document.values.items() if name != "targets"}
        place = ("targets", document.target or "")
        chosen = {name: document.expand(value, (*place, name)) for name, value in over.items()}
        values |= {name: value for name, value in chosen.items() if name not in MOVES}
        targets = document.values.get("targets", {})  # not expanded: another target's secrets may be missing
        values["targets"] = {**targets, document.target: chosen} if document.target and _is_map(targets) else targets
        project = Project.model_validate(values)
        return move_tables(project, document.target) if document.target else project, []
    except ConfigError as error:
        return None, [error]
    except ValidationError as error:
        return None, mistakes(error, document)


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


def mistakes(error: ValidationError, document: Document) -> list[ConfigError]:
    """One error for each mistake, in the order of the file."""
    details: dict[Place, ErrorDetails] = {}
    for detail in error.errors(include_input=False):
        details.setdefault(_place(detail, document.values), detail)  # a union complains once for each of its members
    files = list(dict.fromkeys([document.file.name, *document.homes.values()]))

    def order(place: Place) -> tuple[int, int]:
        return files.index(document.file_of(place)), document.lines.get(place, document.lines.get(place[:-1], 0))

    in_order = sorted(details, key=order)
    return [_mistake(place, details[place], document) for place in in_order]


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
    return f"is wrong: {message.removeprefix('Value error, ')}" if detail["type"] == "value_error" else message


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
    thing = f"{'sink' if 'sinks' in place else 'source'} type at {document.where((*place, 'type'))}:"
    return UnknownKind(thing, str(_value_at(document.values, (*place, "type"))), known=known)


def _value_at(values: Json, place: Place) -> Json:
    for step in place:
        values = values[step]  # type: ignore[index]
    return values
