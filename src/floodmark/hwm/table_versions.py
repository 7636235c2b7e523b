"""The mark of several tables that are read together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from floodmark.errors import MarkInvalid
from floodmark.hwm.frozen import FrozenMap
from floodmark.hwm.json_text import from_json_text
from floodmark.hwm.kinds import register
from floodmark.hwm.mark import HWM, Json
from floodmark.hwm.version import VersionHWM

TableVersions = FrozenMap[str, int]


@register
class TableVersionsHWM(HWM[TableVersions]):
    """The last version of each of several tables that was read; every table rises on its own."""

    kind: ClassVar[str] = "table_versions"
    entity_alias: ClassVar[str | None] = "tables"
    empty: ClassVar[object] = FrozenMap[str, int]()

    def parse(self, value: object) -> TableVersions:
        tables = from_json_text(self.kind, value)
        if not isinstance(tables, Mapping) or not all(isinstance(table, str) for table in tables):
            raise MarkInvalid(self.kind, value, reason="not a map from tables to their versions")
        versions = {
            table: VersionHWM(table, version, modified_time=self.modified_time).value
            for table, version in tables.items()
        }
        if None in versions.values():
            raise MarkInvalid(self.kind, value, reason="a table has no version")
        return FrozenMap({table: version for table, version in versions.items() if version is not None})

    def dump(self) -> Json:
        return dict(self.value.items())

    def show(self) -> Json:
        return dict(sorted(self.value.items()))

    def reaches(self, value: TableVersions) -> bool:
        return all(table in self.value and self.value[table] >= version for table, version in value.items())

    def joined(self, value: TableVersions) -> TableVersions:
        own = self.value
        return own.plus({table: max(version, own.get(table, version)) for table, version in value.items()})
