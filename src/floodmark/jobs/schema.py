"""The JSON Schema of the project file, as editors read it."""

from __future__ import annotations

from floodmark.jobs.project import Project

REFERENCE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:[^}]*)?\}$"}


def project_schema() -> dict[str, object]:
    """The schema; where a number is wanted, `${NAME}` is one too."""
    schema = {name: _with_references(part) for name, part in Project.model_json_schema().items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Floodmark project"}


def _with_references(node: object) -> object:
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = {name: _with_references(value) for name, value in node.items()}
    return {"anyOf": [inner, REFERENCE]} if node.get("type") in ("integer", "boolean", "number") else inner
