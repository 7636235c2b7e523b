"""Every error Floodmark raises: the class is the condition, the attributes are the facts, the hint is the next step.

FloodmarkError
├── ConfigError                 exit 2: the project file, an option or an argument is wrong
│   ├── UnknownField            a field nobody knows, with the nearest known name
│   ├── FieldInvalid            a field that is missing, or whose value does not fit
│   ├── VariableMissing         ${NAME} without a value
│   ├── ModuleNeedsSpark        a user's module that cannot be imported without a session
│   ├── NotJobs                 a Python name that gives something else than jobs
│   ├── ColumnMissing           a sink is told to use a column that the rows do not have
│   ├── ColumnReserved          a column of the user's with a name that belongs to Floodmark
│   ├── ColumnUnfit             a column whose values a sink would change without a word
│   ├── ColumnUnmapped          a column whose values Spark would change without a word
│   ├── UnknownKind             a store, source, sink or mark type nobody registered
│   ├── RuleInvalid             a quality rule that Spark cannot read
│   ├── JoinTreeInvalid         streams that cannot be joined in this way
│   ├── SignatureInvalid        a process function that does not fit what it would be given
│   ├── RunNotFound             a run that no receipt is kept of
│   └── JobNotFound             --select named no job
├── MarkError
│   ├── MarkInvalid             a value this kind of mark refuses
│   ├── MarkFieldUnknown        a mark was made with a field it does not have
│   └── MarkKindMismatch        two marks that cannot be compared
├── StoreError
│   ├── StoreUnreachable        the store could not be read or written: never taken for "first run"
│   │   └── StoreNotPrepared    its tables are not there, and this user may not make them
│   ├── MarkUnreadable          a record is there but cannot be parsed
│   ├── MarkMoved               another run committed first
│   ├── LeaseLost               this run's lease expired or was taken over
│   └── Overtaken               another run closed this run's batch
├── LeaseHeld                   exit 4: another run works on this job
├── DecisionNeeded              exit 5: going on would lose or repeat rows; a person has to choose
│   ├── FormatTooNew            what is stored was written by a newer Floodmark
│   ├── MarkMissing             no mark, but the target already holds rows
│   ├── SinkAhead               a sink has recorded a batch that the store has not
│   ├── SinkBehind              a sink does not have a batch any more that it had confirmed
│   ├── SinkDisagrees           a sink recorded this number for other rows
│   ├── SinkShared              a sink has a batch of another record of this job
│   ├── SinkUndecided           a sink cannot tell any more whether it has a batch
│   ├── BatchChanged            part of a batch is out, and its rows are others when they are read again
│   ├── SinkGone                an open batch was begun for a target that the job does not have any more
│   ├── CodeChanged             an open batch is half written and the code is another one now
│   ├── SpoolLost               an open batch is half written and its spool is gone or damaged
│   ├── BatchClosed             an open batch is in some sinks, and others were fenced against it
│   ├── SourceChanged           the mark belongs to another source
│   ├── SourceRegressed         the source ends below the mark
│   ├── SourceGap               what follows the mark is no longer there
│   ├── CursorNull              rows without a cursor value would never be read
│   ├── TiesTooMany             more rows share a cursor value than can be remembered
│   ├── FenceBlind              a fence cannot see who may still write
│   ├── SourceRewritten         something below the mark was changed
│   ├── ChangeFeedOff           a Delta source whose changes are not recorded
│   ├── SourceEmpty             a full refresh of an empty source would empty the targets
│   ├── SchemaChanged           the batch does not fit the target
│   ├── RangeAboveMark          a backfill of rows that come by themselves
│   ├── NoGoodRun               a rollback to the last good run of a job that has none
│   └── BackfillOpen            another backfill of the job is not finished
├── SourceUnreadable            the source could not be looked at: never taken for "no rows"
│   ├── DeltaTableMissing       there is no Delta table at that place
│   └── RecordMalformed         a record that cannot be parsed, with file and line
├── ElementInvalid              an element of a stream that does not fit its class, with its position
├── ElementFailed               a process function raised, with the element's position
├── KeyDecreased                a stream that is joined goes back in its key
├── TransformFailed             the user's SQL or function raised
├── RuleBroken                  a rule with the action `fail` does not hold: nothing was written
├── TaskFailed                  the program of a workflow's task ended badly
│   └── TaskTimedOut            it did not end within its time
├── NumbersDisagree             rows read, kept and written do not add up: the batch is not done
├── SinkFailed                  a sink could not be written
│   ├── DiskNotShared           a task does not see the folder that the driver made
│   ├── ConflictingEvents       two events of one key and moment say different things
│   └── SnapshotRefused         a snapshot that would delete everything, or is older than the last
├── KeysCollide                 two rows of a dimension got the same surrogate key
├── SinkUnreachable             a sink's server could not be reached: never taken for "nothing recorded"
├── RecordsFailed               records of a stream failed: its mark stops at the first of them
├── HealingFailed               the steps of a stream could not be run on Spark at all
├── PublicationFailed           the group's offsets could not be published to Kafka; our own mark has moved
└── SparkUnavailable            no session could be started
    ├── JavaMissing             no Java 17 or 21
    └── ConnectorsMissing       the JVM connectors could not be resolved
"""

from __future__ import annotations

from floodmark.errors.configuration import (
    ColumnMissing,
    ColumnReserved,
    ColumnUnfit,
    ColumnUnmapped,
    ConfigError,
    FieldInvalid,
    FloodmarkError,
    JobNotFound,
    JoinTreeInvalid,
    MarkError,
    MarkFieldUnknown,
    MarkInvalid,
    MarkKindMismatch,
    ModuleNeedsSpark,
    NotJobs,
    RuleInvalid,
    RunNotFound,
    SignatureInvalid,
    UnknownField,
    UnknownKind,
    VariableMissing,
)
from floodmark.errors.data import (
    ConflictingEvents,
    ConnectorsMissing,
    DeltaTableMissing,
    DiskNotShared,
    ElementFailed,
    ElementInvalid,
    HealingFailed,
    JavaMissing,
    KeyDecreased,
    KeysCollide,
    NumbersDisagree,
    PublicationFailed,
    RecordMalformed,
    RecordsFailed,
    RuleBroken,
    SinkFailed,
    SinkUnreachable,
    SnapshotRefused,
    SourceUnreadable,
    SparkUnavailable,
    TaskFailed,
    TaskTimedOut,
    TransformFailed,
)
from floodmark.errors.decisions import (
    BackfillOpen,
    BatchChanged,
    BatchClosed,
    ChangeFeedOff,
    CodeChanged,
    CursorNull,
    DecisionNeeded,
    FenceBlind,
    FormatTooNew,
    MarkMissing,
    NoGoodRun,
    RangeAboveMark,
    SchemaChanged,
    SinkAhead,
    SinkBehind,
    SinkDisagrees,
    SinkGone,
    SinkShared,
    SinkUndecided,
    SourceChanged,
    SourceEmpty,
    SourceGap,
    SourceRegressed,
    SourceRewritten,
    SpoolLost,
    TiesTooMany,
)
from floodmark.errors.stores import (
    LeaseHeld,
    LeaseLost,
    MarkMoved,
    MarkUnreadable,
    Overtaken,
    StoreError,
    StoreNotPrepared,
    StoreUnreachable,
)

__all__ = [
    "BackfillOpen",
    "BatchChanged",
    "BatchClosed",
    "ChangeFeedOff",
    "CodeChanged",
    "ColumnMissing",
    "ColumnReserved",
    "ColumnUnfit",
    "ColumnUnmapped",
    "ConfigError",
    "ConflictingEvents",
    "ConnectorsMissing",
    "CursorNull",
    "DecisionNeeded",
    "DeltaTableMissing",
    "DiskNotShared",
    "ElementFailed",
    "ElementInvalid",
    "FenceBlind",
    "FieldInvalid",
    "FloodmarkError",
    "FormatTooNew",
    "HealingFailed",
    "JavaMissing",
    "JobNotFound",
    "JoinTreeInvalid",
    "KeyDecreased",
    "KeysCollide",
    "LeaseHeld",
    "LeaseLost",
    "MarkError",
    "MarkFieldUnknown",
    "MarkInvalid",
    "MarkKindMismatch",
    "MarkMissing",
    "MarkMoved",
    "MarkUnreadable",
    "ModuleNeedsSpark",
    "NoGoodRun",
    "NotJobs",
    "NumbersDisagree",
    "Overtaken",
    "PublicationFailed",
    "RangeAboveMark",
    "RecordMalformed",
    "RecordsFailed",
    "RuleBroken",
    "RuleInvalid",
    "RunNotFound",
    "SchemaChanged",
    "SignatureInvalid",
    "SinkAhead",
    "SinkBehind",
    "SinkDisagrees",
    "SinkFailed",
    "SinkGone",
    "SinkShared",
    "SinkUndecided",
    "SinkUnreachable",
    "SnapshotRefused",
    "SourceChanged",
    "SourceEmpty",
    "SourceGap",
    "SourceRegressed",
    "SourceRewritten",
    "SourceUnreadable",
    "SparkUnavailable",
    "SpoolLost",
    "StoreError",
    "StoreNotPrepared",
    "StoreUnreachable",
    "TaskFailed",
    "TaskTimedOut",
    "TiesTooMany",
    "TransformFailed",
    "UnknownField",
    "UnknownKind",
    "VariableMissing",
]
