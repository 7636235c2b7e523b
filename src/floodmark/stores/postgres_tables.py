"""The tables of the PostgreSQL store: their names, and the statements that make them."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.errors import ConfigError

DEFAULT = "floodmark_marks"
FORMAT = 1
COMMENT = "Floodmark marks, format "
LONGEST_BYTES = 63
MINE = "namespace text not null, job text not null"


@dataclass(frozen=True)
class Tables:
    """The table of the marks, as the user named it, and those beside it: `floodmark_marks`, `floodmark_items`, …"""

    schema: str | None
    name: str

    @classmethod
    def named(cls, text: str) -> Tables:
        """From `table` or `schema.table`. Raises ConfigError if PostgreSQL would cut a name short."""
        schema, _, name = text.rpartition(".")
        tables = cls(schema or None, name)
        longest = f"{tables._stem}_runs_of_job"
        if not name or "." in schema or "\0" in text or max(len(part.encode()) for part in (schema, longest)) > 63:
            raise ConfigError(
                f"'{text}' cannot name the table of the marks.",
                hint=f"table=name or table=schema.name, at most {LONGEST_BYTES - len('_runs_of_job')} letters",
            )
        return tables

    @property
    def _stem(self) -> str:
        return self.name.removesuffix("_marks")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def marks(self) -> str:
        """The quoted name of the table of the records."""
        return self._quoted(self.name)

    def beside(self, part: str) -> str:
        """The quoted name of a table beside it."""
        return self._quoted(f"{self._stem}_{part}")

    def _quoted(self, name: str) -> str:
        return f"{quoted(self.schema)}.{quoted(name)}" if self.schema else quoted(name)

    def make_schema(self) -> str:
        """The statement for the schema; empty if none was named."""
        return f"create schema if not exists {quoted(self.schema)};\n" if self.schema else ""

    def make_tables(self) -> str:
        """The statements for the tables."""
        items, history, runs = self.beside("items"), self.beside("history"), self.beside("runs")
        return f"""create table {self.marks} (
    namespace text not null, key text not null, val jsonb not null, number bigint not null,
    modified_time timestamptz not null, stamp text not null, primary key (namespace, key));
create table {items} ({MINE}, source text not null, number bigint not null, item bytea not null, value text not null);
create index {quoted(f"{self._stem}_items_of_job")} on {items} (namespace, job, source, number);
create table {history} (
    namespace text not null, key text not null, number bigint not null, val jsonb not null,
    primary key (namespace, key, number));
create table {runs} (id bigint generated always as identity primary key, {MINE}, val jsonb not null);
create index {quoted(f"{self._stem}_runs_of_job")} on {runs} (namespace, job, id);
create table {self.beside("leases")} (
    {MINE}, val jsonb not null, beat_at timestamptz not null, primary key (namespace, job));
create table {self.beside("looked")} ({MINE}, at timestamptz not null, primary key (namespace, job));
comment on table {self.marks} is '{COMMENT}{FORMAT}';
"""

    def ddl(self) -> str:
        """Everything that somebody with the right to create has to run once."""
        return self.make_schema() + self.make_tables()


def quoted(name: str | None) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + (name or "").replace('"', '""') + '"'
