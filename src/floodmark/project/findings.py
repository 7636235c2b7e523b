"""What lint and check may find: every rule with its id, and a finding as a value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Severity = Literal["error", "warning", "note"]
Promise = Literal["exactly once", "at least once"]

RULES: dict[str, tuple[Severity, str]] = {
    "FM100": ("error", "the project file is wrong"),
    "FM101": ("error", "the transform's SQL cannot be parsed"),
    "FM102": ("error", "the transform's SQL does not read `source`"),
    "FM103": ("warning", "the transform's SQL may answer otherwise when it is run again"),
    "FM104": ("error", "the transform's SQL is not one query"),
    "FM105": ("warning", "the transform's SQL reads a table beside the source"),
    "FM106": ("error", "the transform's SQL names a column that the source does not have"),
    "FM107": ("error", "a type that Spark does not have"),
    "FM108": ("error", "a master that Spark does not know"),
    "FM110": ("error", "a Python name that is not there"),
    "FM111": ("error", "a transform that gives nothing back"),
    "FM112": ("warning", "jobs of Python that could not be looked into"),
    "FM113": ("error", "a Python name that gives no jobs"),
    "FM121": ("error", "a quality rule's SQL cannot be parsed"),
    "FM122": ("warning", "a quality rule may judge otherwise when it is asked again"),
    "FM123": ("error", "a quality rule names a column that the rows do not have"),
    "FM124": ("error", "a sink is told to use a column that the rows do not have"),
    "FM125": ("error", "a column whose name a Delta table does not take"),
    "FM201": ("error", "merge without a key"),
    "FM202": ("error", "replace without `by` would keep only the last batch"),
    "FM203": ("warning", "an option that the sink's mode does not use"),
    "FM204": ("error", "two sinks write to one place"),
    "FM205": ("warning", "Delta on s3a: one driver at a time"),
    "FM206": ("error", "options that contradict each other"),
    "FM207": ("warning", "a folder of this machine, and executors on others"),
    "FM208": ("warning", "a frozen fact over a dimension that drops superseded versions"),
    "FM209": ("warning", "a JDBC driver that nothing brings"),
    "FM210": ("warning", "a table that another job fills in a way that this one cannot follow"),
    "FM211": ("warning", "a job that reads what it fills, by itself or through other jobs"),
    "FM301": ("note", "the batch is frozen in the spool before it is written"),
    "FM302": ("note", "a sink that repeats rows after a crash"),
    "FM303": ("note", "a spool on one machine, and a store that several share"),
    "FM311": ("note", "a cursor sees neither silent updates nor deletes"),
    "FM312": ("note", "a merge that cannot tell which row is newer"),
    "FM313": ("note", "a sink that appends takes what is delivered again"),
    "FM314": ("note", "an update or delete stops a job that takes added rows"),
    "FM315": ("note", "retention and compaction"),
    "FM316": ("note", "files that change after they were read"),
    "FM317": ("note", "a Kafka sink needs consumers that read committed messages"),
    "FM410": ("warning", "safety none: a row that commits late is never read"),
    "FM411": (
        "warning",
        "told by a run and by check: the sequence behind the cursor has a cache, or does not only grow",
    ),
    "FM412": ("warning", "told by a run and by check: the values of the cursor may be made outside the database"),
    "FM413": ("warning", "safety delay: a transaction that is open for longer is missed"),
    "FM414": ("error", "safety lag reads rows again, and a sink would write them twice"),
    "FM415": ("note", "reading by xmin scans the table"),
    "FM416": ("error", "on_null include into a sink that does not merge"),
    "FM417": ("error", "a cursor that is not unique, and no key that tells rows apart"),
    "FM501": ("error", "a source or sink cannot be reached, or refuses to be read or written"),
    "FM502": ("warning", "no index serves the cursor"),
    "FM503": ("note", "the cursor is not unique"),
    "FM504": ("note", "the cursor may be NULL"),
    "FM505": ("warning", "retention may pass the mark"),
    "FM506": ("note", "a compacted topic"),
    "FM507": ("error", "a table lacks a right, an index, or is not there"),
    "FM508": ("error", "an executor does not see a folder that the driver makes"),
}
JOBS_NAMED = 3
Remarks: TypeAlias = "Iterator[tuple[str, str, str]]"
"""A rule's id (empty where all is well), what was found, and what to do."""


@dataclass(frozen=True)
class Finding:
    """Something lint has to say about a line of the project file."""

    rule: str
    where: str
    job: str | None
    message: str
    hint: str

    @property
    def severity(self) -> Severity:
        """As the rule has it."""
        return RULES[self.rule][0]


@dataclass(frozen=True)
class Guarantee:
    """What a job promises for one sink."""

    job: str
    source: str
    sink: str
    guarantee: Promise
    words: str


@dataclass(frozen=True)
class Report:
    """All that lint has to say."""

    findings: tuple[Finding, ...]
    guarantees: tuple[Guarantee, ...] = ()
    limits: tuple[Finding, ...] = ()
    """What is not guaranteed."""

    def together(self) -> Report:
        """What is said of several jobs in the same words, once: for people who read it, not for programs."""
        same: dict[tuple[str, str, str], list[Guarantee]] = {}
        for each in self.guarantees:
            same.setdefault((each.source, each.sink, each.words), []).append(each)
        guarantees = [replace(group[0], job=_jobs_text([e.job for e in group]) or "") for group in same.values()]
        return Report(_joined(self.findings), tuple(guarantees), _joined(self.limits))

    def of(self, jobs: Collection[str]) -> Report:
        """What is said of these jobs, and of the file as a whole."""
        return Report(
            tuple(each for each in self.findings if each.job is None or each.job in jobs),
            tuple(each for each in self.guarantees if each.job in jobs),
            tuple(each for each in self.limits if each.job in jobs),
        )

    @property
    def has_errors(self) -> bool:
        """Whether a run would be refused or go wrong."""
        return any(finding.severity == "error" for finding in self.findings)


def _joined(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with the same words as one, of all their jobs, at the place of the first."""
    same: dict[tuple[str, str, str], list[Finding]] = {}
    for each in findings:
        same.setdefault((each.rule, each.message, each.hint), []).append(each)
    return tuple(replace(group[0], job=_jobs_text([each.job for each in group if each.job])) for group in same.values())


def _jobs_text(jobs: Sequence[str]) -> str | None:
    if len(jobs) <= 1:
        return jobs[0] if jobs else None
    named = ", ".join(jobs[:JOBS_NAMED])
    return f"{len(jobs)} jobs ({named}{', …' if len(jobs) > JOBS_NAMED else ''})"
