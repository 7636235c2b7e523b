"""`${VAR}` and `${VAR:default}`: where values come from, and how they are kept out of every line of output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.errors import ConfigError, VariableMissing
from floodmark.logs import redact

REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<default>[^}\n]*))?\}")
_SHORTEST_SECRET = 4  # replacing "1" or "no" wherever they stand would make every message unreadable


@dataclass(frozen=True)
class Variables:
    """The environment as a project file sees it; it remembers which values it gave away."""

    values: Mapping[str, str]
    _given: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def expand(self, text: str, *, where: str) -> str:
        """The text with every reference replaced; `$${` stands for a plain `${`. Raises VariableMissing."""

        def value(reference: re.Match[str]) -> str:
            return self._value(reference, where) if reference["name"] else "${"

        return REFERENCE.sub(value, text)

    def scrub(self, text: str) -> str:
        """The text with every value that was given away shown as its name again, and passwords as ***."""
        for value, name in sorted(self._given.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(value, f"${{{name}}}")
        return redact(text)

    def _value(self, reference: re.Match[str], where: str) -> str:
        name, default = reference["name"], reference["default"]
        if name not in self.values:
            if default is None:
                raise VariableMissing(name, where=where)
            return str(default)
        value = self.values[name]
        if len(value) >= _SHORTEST_SECRET:
            self._given[value] = name
        return value


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=value lines, as `docker run --env-file` and most shells write them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"env file {path} cannot be read: {error.strerror}.", hint="check --env-file") from error
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
