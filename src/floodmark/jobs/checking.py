"""Check: what can be told about a job online, before its first run. Every part is asked, and none is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.jobs.check_kafka import kafka_findings
from floodmark.jobs.check_postgres import source_findings, target_findings
from floodmark.jobs.findings import RULES, Said
from floodmark.sinks import Postgres as PostgresSink
from floodmark.sinks.contract import ledger_id
from floodmark.sources import Kafka, Postgres
from floodmark.sources.contract import Request
from floodmark.step.looking import part_of, require_same_sources
from floodmark.step.work import shown

if TYPE_CHECKING:
    from floodmark.hwm import HWM
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Sight, Source
    from floodmark.step import Step
    from floodmark.stores.record import JobRecord

GRAVEST = (5, 1, 4, 2)
"""Exit codes: a decision, a failure, a lease, the configuration."""


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at; `rule` is empty where all is well."""

    job: str
    part: str
    message: str
    rule: str = ""
    hint: str = ""
    exit_code: int = 0

    @property
    def severity(self) -> str:
        """As the rule has it, or ok."""
        return RULES[self.rule][0] if self.rule else "ok"


@dataclass(frozen=True)
class JobCheck:
    """One job, asked part by part: one that cannot be reached is a finding, and the others are asked all the same."""

    step: Step

    def lines(self) -> Iterator[Checked]:
        record = self.step.read()
        yield self.well("mark", f"at {shown(record.marks)}" if record.marks else "none: the next run is the first one")
        for source in self.step.work.sources:
            yield from self.asked(f"source {source.name}", self.source(source, record))
        for sink in self.step.work.sinks:
            yield from self.asked(f"sink {sink.name}", self.sink(sink))

    def asked(self, part: str, said: Said) -> Iterator[Checked]:
        try:
            for rule, message, hint in said:
                code = 2 if rule and RULES[rule][0] == "error" else 0
                yield Checked(self.step.work.name, part, message, rule, hint, code)
        except FloodmarkError as error:
            yield Checked(self.step.work.name, part, error.message, "FM501", error.hint, error.exit_code)

    def well(self, part: str, message: str) -> Checked:
        return Checked(self.step.work.name, part, message)

    def source(self, source: Source, record: JobRecord) -> Said:
        """Whether it is there and the same as ever, what its cursor is worth, and what waits above the mark."""
        found, mark = source.fingerprint(self.step.session), record.marks.get(source.name)
        yield "", f"reads {found}", ""
        yield from particular(source, mark)
        require_same_sources(self.step.work, record, {source.name: found})
        request = Request(extras=part_of(record.extras, source.name), waits=False)
        yield "", told(source.look(mark, request, self.step.session)), ""

    def sink(self, sink: Sink) -> Said:
        """Whether it can be reached, and what it has of this job."""
        ledger = ledger_id(self.step.store.namespace, self.step.work.name, sink.name)
        recorded = sink.recorded(ledger, self.step.session)
        has = f"has batch {recorded.number}" if recorded else "has nothing of this job yet"
        yield "", f"{sink.describe()} {has}", ""
        if isinstance(sink, PostgresSink):
            yield from target_findings(sink)


def particular(source: Source, mark: HWM[object] | None) -> Said:
    """What only this kind of source can be asked."""
    if isinstance(source, Postgres):
        yield from source_findings(source)
    if isinstance(source, Kafka):
        yield from kafka_findings(source, mark)


def told(sight: Sight) -> str:
    """What a look saw."""
    held = f"; {sight.held_back} held back: {sight.held_reason}" if sight.held_back else ""
    if sight.span is None:
        return f"nothing new{held}"
    rows = "rows" if sight.expected_rows is None else f"{sight.expected_rows} rows"
    return f"{rows} to read, up to {sight.span.upto.show()}{held}"


def exit_code(lines: Sequence[Checked]) -> int:
    """0 if no error was found, else the code of the gravest."""
    codes = {line.exit_code for line in lines if line.severity == "error"}
    return next((code for code in GRAVEST if code in codes), 0)
