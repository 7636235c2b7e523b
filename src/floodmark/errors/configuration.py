"""The root of all errors, and those in what a person wrote: the project file, an option, a rule, a mark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from floodmark.logs import redact

LONGEST_NAME = 200
"""Of a name that others are compared with."""
LONGEST_MESSAGE = 4000
LONGEST_VALUE = 200
"""Of a value within a message."""
SHOWN = 20
"""So many names are listed where one is not found."""


def nearest_names(name: str, known: Iterable[str], *, most: int = 1, likeness: float = 0.6) -> list[str]:
    """The known names that are most like this one; none, if none is like it."""
    if len(name) > LONGEST_NAME:  # nobody mistyped that, and comparing it takes long
        return []
    return get_close_matches(name, list(known), n=most, cutoff=likeness)


def did_you_mean(near: Sequence[str]) -> str:
    """The hint for a name that is near one or several others; empty if it is near none."""
    return f"did you mean {', '.join(near)}?" if near else ""


def _presentable(text: str) -> str:
    """Without a password, and cut where somebody gave a name of a thousand pages."""
    return redact(text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…")


class FloodmarkError(Exception):
    """An error with a next step; `exit_code` is what the command line returns for it. It shows no password of a URL."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        self.message, self.hint = _presentable(message), _presentable(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} Try: {self.hint}" if self.hint else self.message


class ConfigError(FloodmarkError):
    """The project file, an option or an argument is wrong."""

    exit_code = 2


class UnknownField(ConfigError):
    """A field nobody knows."""

    def __init__(self, field: str, *, where: str, known: Sequence[str], place: str = "") -> None:
        near = nearest_names(field, known, likeness=0.5)
        hint = place or did_you_mean(near) or "floodmark schema shows every field"
        super().__init__(f"unknown field '{field}' at {where}.", hint=hint)
        self.field, self.where, self.nearest = field, where, near[0] if near else None


class FieldInvalid(ConfigError):
    """A field that is missing, or whose value does not fit; the value itself may be a secret and is not shown."""

    def __init__(self, field: str, *, where: str, reason: str, hint: str = "", shown: str = "") -> None:
        hint = hint or "fix that line; floodmark schema shows every field"
        super().__init__(f"{where}: {shown or field} {reason}.", hint=hint)
        self.field, self.where, self.reason = field, where, reason


class VariableMissing(ConfigError):
    """`${NAME}` stands in the project file and has no value."""

    def __init__(self, variable: str, *, where: str) -> None:
        super().__init__(
            f"variable {variable} has no value ({where}).",
            hint=f"export {variable}=…, give --env-file, or write ${{{variable}:default}}",
        )
        self.variable, self.where = variable, where


class ModuleNeedsSpark(ConfigError):
    """A user's module that cannot be imported without a Spark session."""

    def __init__(self, module: str, *, reason: str, imported: Sequence[str] = ()) -> None:
        super().__init__(
            f"could not look inside {module}: it needs Spark ({reason}).",
            hint="`floodmark run` imports it once Spark has started; to be seen without, make what needs a session "
            "inside a function",
        )
        self.module, self.reason, self.imported = module, reason, tuple(imported)
        """The modules that were being imported, one by another."""


class NotJobs(ConfigError):
    """A Python name that should give jobs, and gives something else."""

    def __init__(self, name: str, *, kind: str) -> None:
        hint = "give a floodmark.Job, a stream, a list of them, or a function for one"
        super().__init__(f"{name} gives {kind}, and not jobs.", hint=hint)
        self.name, self.kind = name, kind


class ColumnUnmapped(ConfigError):
    """A column of a type that Spark cannot hold as it is: reading it would change values without a word."""

    def __init__(self, source: str, *, column: str, type_name: str) -> None:
        is_number = any(word in type_name.lower() for word in ("numeric", "decimal", "number", "money"))
        exact = f"`types: {{{column}: string}}` keeps every digit"
        rounded = f", `types: {{{column}: 'decimal(38,10)'}}` is a number where ten places behind the point are enough"
        super().__init__(
            f"column '{column}' of {source} is of type {type_name or '(none)'}, which Spark would change.",
            hint=f"{exact}{rounded}" if is_number else f"`types: {{{column}: string}}` reads its text; or leave it out",
        )
        self.source, self.column, self.type_name = source, column, type_name


class ColumnUnfit(ConfigError):
    """A column of a type that a target has no exact form for: writing it would change values without a word."""

    def __init__(self, target: str, *, column: str, type_name: str, hint: str = "") -> None:
        super().__init__(
            f"column '{column}' is {type_name}, which {target} cannot hold exactly.",
            hint=hint or f"cast it in the transform, to string for instance, or leave {column} out",
        )
        self.target, self.column, self.type_name = target, column, type_name


class ColumnMissing(ConfigError):
    """A sink is told to use a column that the rows do not have; nothing was written."""

    def __init__(self, job: str, *, sink: str, use: str, column: str, columns: Sequence[str]) -> None:
        more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
        super().__init__(
            f"sink '{sink}' of job '{job}' has {use} '{column}', and its rows have no such column: they have "
            f"{', '.join(columns[:SHOWN])}{more}.",
            hint=did_you_mean(nearest_names(column, columns)) or f"fix `{use}`, or select {column} in the transform",
        )
        self.job, self.sink, self.use, self.column, self.columns = job, sink, use, column, tuple(columns)


class ColumnReserved(ConfigError):
    """A column whose name begins as those do that a step adds for itself: it would be dropped without a word."""

    def __init__(self, place: str, *, column: str, prefix: str) -> None:
        super().__init__(
            f"{place} has a column '{column}', and names that begin with {prefix} belong to Floodmark.",
            hint=f"rename it where it is read: select {column} as {column[len(prefix) :] or 'another_name'}, …",
        )
        self.place, self.column = place, column


class UnknownKind(ConfigError):
    """A store, source, sink or mark type that nobody registered."""

    def __init__(self, thing: str, kind: str, *, known: Sequence[str], where: str = "") -> None:
        place = f" at {where}" if where else ""
        near = did_you_mean(nearest_names(kind, known))
        super().__init__(f"unknown {thing} '{kind}'{place}.", hint=f"{near} one of: {', '.join(sorted(known))}".strip())
        self.thing, self.kind, self.known = thing, kind, tuple(known)
        if where:
            self.where = where


class RuleInvalid(ConfigError):
    """A quality rule that Spark cannot read: a column that is not there, or SQL that is none."""

    def __init__(self, rule: str, *, reason: str, hint: str = "") -> None:
        said = f"rule '{rule}' cannot be judged: {reason.rstrip('.')}."
        super().__init__(said, hint=hint or "fix the rule; its SQL is Spark's dialect")
        self.rule, self.reason = rule, reason


class JobNotFound(ConfigError):
    """`--select` named no job of this project."""

    def __init__(self, job: str, *, known: Sequence[str]) -> None:
        known = [name for name in known if not name.startswith("floodmark.")]  # what we keep for ourselves is no job
        near = did_you_mean(nearest_names(job, known))
        listed = f"one of: {', '.join(known[:SHOWN])}" + (
            f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        )
        hint = f"{near} {listed}".strip() if known else "the project has no jobs: add one under `jobs:`"
        tag = job.removeprefix("tag:")
        said = f"no job '{job}'." if tag == job else f"no job has the tag '{tag}'."
        super().__init__(said, hint=hint)
        self.job, self.known = job, tuple(known)


class RunNotFound(ConfigError):
    """No run of that id is kept, or several begin so."""

    def __init__(self, run: str, *, known: Sequence[str]) -> None:
        alike = [each for each in known if run and each.startswith(run)]
        near = alike or nearest_names(run, known, most=3, likeness=0.4) or known[-3:]
        said = f"{len(alike)} runs begin with '{run}'." if alike else f"there is no run '{run}'."
        nearest = f"one of: {', '.join(near)}; " if near else ""
        super().__init__(said, hint=f"{nearest}`floodmark runs` shows their ids")
        self.run, self.near = run, tuple(near)


class JoinTreeInvalid(ConfigError):
    """Streams that cannot be joined in this way."""

    def __init__(self, stream: str, *, reason: str, hint: str) -> None:
        super().__init__(f"join of {stream}: {reason}.", hint=hint)
        self.stream, self.reason = stream, reason


class SignatureInvalid(ConfigError):
    """A process function asks for something that it cannot be given, or gives what cannot be sent."""

    def __init__(self, function: str, *, argument: str, reason: str, hint: str) -> None:
        super().__init__(f"{function}, {argument}: {reason}.", hint=hint)
        self.function, self.argument, self.reason = function, argument, reason


class MarkError(FloodmarkError):
    """Something is wrong with a mark itself."""


class MarkInvalid(MarkError, ValueError):
    """A value that this kind of mark refuses."""

    def __init__(self, kind: str, value: object, *, reason: str) -> None:
        super().__init__(f"{kind} refuses {_short_text(value)}: {reason}.", hint="pass a value of the kind's own type")
        self.kind, self.value, self.reason = kind, value, reason


def _short_text(value: object) -> str:
    """The value for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more than 4300 digits
        text = f"a number of type {type(value).__name__}"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


class MarkFieldUnknown(MarkError, TypeError):
    """A mark was made with a field that it does not have."""

    def __init__(self, kind: str, field: str, *, known: Sequence[str]) -> None:
        super().__init__(f"{kind} has no field '{field}'.", hint=f"one of: {', '.join(known)}")
        self.kind, self.field, self.known = kind, field, tuple(known)


class MarkKindMismatch(MarkError, TypeError):
    """Two marks (or a mark and a value) that cannot be compared."""

    def __init__(self, left: object, right: object, *, reason: str) -> None:
        super().__init__(
            f"cannot compare {left!r} with {right!r}: {reason}.",
            hint="compare marks of the same kind, name and entity",
        )
        self.left, self.right, self.reason = left, right, reason
