"""From a parsed project file to its values: the project, everything that is wrong with it, and its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic import ValidationError

from floodmark import __version__
from floodmark.errors import ConfigError, UnknownField, VariableMissing
from floodmark.object_stores import SETTINGS
from floodmark.project.file import Document, chosen_target
from floodmark.project.folder import gather
from floodmark.project.mistakes import mistakes, repeated_names
from floodmark.project.models import Project
from floodmark.project.targets import MOVES, move_tables

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.inputs.yaml import Place


SCHEMA_FILE, JOB_SCHEMA_FILE = Path(".floodmark/schema.json"), Path(".floodmark/jobs.schema.json")
COMMENT_WITHIN = 300
"""The version stands within so many letters of the schema's beginning."""
REFERENCE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:[^}]*)?\}$"}


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
