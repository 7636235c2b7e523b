"""Tags as columns: which tag means what, what is written where one is missing, and which tags are inherited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from floodmark.errors import ConfigError
from floodmark.inputs import LARGEST_DOCUMENT, read_text
from floodmark.inputs.yaml import plain_values
from floodmark.locations import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


DEFAULT = Path(__file__).with_name("default_tags.yaml")


class Tags(BaseModel):
    """A mapping of tags. `columns`: by column, the tags it comes from, the first that is there wins.

    `defaults`: what a column has where no tag is there. `words`: by column, spellings that mean one word; other values
    of such a column are written in lower case. Names and spellings are compared trimmed and without case.

    >>> tags = Tags(columns={"team": ("team", "owner")}, defaults={"team": "nobody"})
    >>> rows = spark.sql("SELECT 7 AS id, map('Owner', 'data') AS tags")
    >>> tags.flatten(rows, ["tags"]).first().team
    'data'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, str] = {}
    words: Mapping[str, Mapping[str, tuple[str, ...]]] = {}

    @model_validator(mode="after")
    def _only_known_columns(self) -> Tags:
        unknown = sorted({*self.defaults, *self.words} - set(self.columns))
        if unknown:
            raise ValueError(f"'{unknown[0]}' is in defaults or words, and not among the columns")
        return self

    @classmethod
    def load(cls, path: str | Path = DEFAULT) -> Tags:
        """The mapping in a YAML file. Raises ConfigError for one that cannot be read or means nothing."""
        try:
            text = read_text(Path(path), hint="check the path of the tags file", largest=LARGEST_DOCUMENT)
            return cls.model_validate(plain_values(text, f"tags file {path}"))
        except ValidationError as error:
            raise ConfigError(
                f"tags file {path}: {_first_mistake(error)}.", hint="it has columns, defaults, words"
            ) from error

    def flatten(self, rows: DataFrame, tags: Sequence[str]) -> DataFrame:
        """The rows with a column for each tag. `tags` are columns with maps, the nearest first: what a usage says of
        itself wins over its cluster, and that over its job."""
        return rows.withColumns({column: self.value(rows, column, tags) for column in self.columns})

    def value(self, rows: DataFrame, column: str, tags: Sequence[str]) -> Column:
        """One of those columns."""
        from pyspark.sql import functions as F

        for each in tags:
            _require_map(rows, each)
        text = F.coalesce(*(_tag(each, name) for each in tags for name in self.columns[column]))
        value = self._word(column, text) if column in self.words else text
        return F.coalesce(value, F.lit(self.defaults[column])) if column in self.defaults else value

    def _word(self, column: str, text: Column) -> Column:
        """The one word for all its spellings; another text in lower case."""
        from pyspark.sql import functions as F

        plain = F.lower(text)
        chosen = F.when(text.isNull(), F.lit(None).cast("string"))
        for word, spellings in self.words[column].items():
            chosen = chosen.when(plain.isin([spelling.strip().lower() for spelling in spellings]), F.lit(word))
        return chosen.otherwise(plain)


def exploded(rows: DataFrame, keys: Sequence[str], tags: str) -> DataFrame:
    """One row per tag: the keys, `tag_key`, `tag_value`; rows without tags have none.

    >>> rows = spark.sql("SELECT 7 AS id, map('team', 'data') AS tags")
    >>> [tuple(row) for row in exploded(rows, ["id"], "tags").collect()]
    [(7, 'team', 'data')]
    """
    from pyspark.sql import functions as F

    _require_map(rows, tags)
    entry = F.explode(F.map_entries(F.col(quote(tags)))).alias("_fm_entry")
    named = (F.col(f"_fm_entry.{part}").alias(f"tag_{part}") for part in ("key", "value"))
    return rows.select(*map(quote, keys), entry).select(*map(quote, keys), *named)


def _first_mistake(error: ValidationError) -> str:
    mistake = error.errors()[0]
    return f"{'.'.join(map(str, mistake['loc'])) or 'the file'}: {mistake['msg']}"


def _tag(tags: str, name: str) -> Column:
    """The tag's text, trimmed; one that is blank is not there."""
    from pyspark.sql import functions as F

    wanted = name.strip().lower()
    alike = F.filter(F.map_entries(F.col(quote(tags))), lambda entry: F.lower(F.trim(entry["key"])) == wanted)
    text = F.trim(F.get(F.array_sort(alike), F.lit(0))["value"])
    return F.when(text != "", text)


def _require_map(rows: DataFrame, column: str) -> None:
    kind = rows.schema[column].dataType.simpleString() if column in rows.columns else "missing"
    if kind != "map<string,string>":
        raise ConfigError(f"tags column '{column}' is {kind}.", hint="tags are a map<string,string>")
