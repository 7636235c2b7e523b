"""Which way a batch takes into a Delta table: through Arrow or as Parquet if batch, rows and table allow it, else
through Spark's writer.

Only what is known to give the same table both ways is on the lists here; whatever they do not name is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from floodmark.probes.delta import FEED
from floodmark.probes.delta.files import FROM_DATABASES, PARTITION_TYPES, PLAIN_TYPES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType

    from floodmark.probes.delta import Commit, DeltaProbe, TableFeatures

REWRITTEN_BYTES = 32 * 1024 * 1024
"""Of the files that a merge may have to write anew: `deltalake` writes whole files, and Spark has more cores."""
FEATURES = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
)
"""What a table may be able to do; whether it does, its properties and columns tell."""
LEGACY_WRITER = 4
"""Up to this version, a table without a list of features can do what is on ours."""
PROPERTIES = frozenset(
    {
        FEED,
        "delta.appendOnly",
        "delta.checkpointInterval",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.logRetentionDuration",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
    }
)
SWITCHED_OFF = frozenset({"delta.enableDeletionVectors"})
"""Properties that say nothing as long as they are false."""
DEFAULTS = "spark.databricks.delta.properties.defaults."
"""How settings of a session begin that become properties of every table which Spark makes in it."""
NO_TIME_ZONE = "timestamp_ntz"
TEXT_LENGTH, ANY_LENGTH = "__CHAR_VARCHAR_TYPE_STRING", f"varchar({2**31 - 1})"
"""Where Spark notes how long the text of a column may be; of `text` in PostgreSQL it is as long as any can be."""
KEY_TYPES = PARTITION_TYPES
"""What a merge may match by, and a table be parted by.

The log has times without their microseconds and decimals as floats: by them a file could be passed over that has the
key.
"""
BYTES_REMOVED = "numTargetBytesRemoved"
"""Under which a merge of Spark's tells how large the files were that it wrote anew."""
REFUSED_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Delta's writer makes no table with a column that has one of these, and changes none that was made with it."""
NAMES_OF_FEED = frozenset(["_change_type", "_commit_version", "_commit_timestamp"])
"""Columns of a change feed: a table that has a feed must have none that is called so."""
EXACT_DIGITS = 15
"""So many digits of a decimal has the log, which writes it as a float."""


class AnotherWay(Exception):
    """The batch takes another way than this one, for a reason that the debug log gives; nothing was committed."""


def require_plain_session(settings: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """A new table is to have nothing that Spark would have to give it. Raises AnotherWay."""
    if unknown := unknown_properties(properties):
        raise AnotherWay(f"the sink gives a new table the property {unknown[0]}")
    if any(name.startswith(DEFAULTS) for name in settings):
        raise AnotherWay("the session gives new tables properties")


def require_plain_table(features: TableFeatures, properties: Mapping[str, str], *, appends: bool) -> None:
    """The table has no ability that `deltalake` lacks, or has its own way with. Raises AnotherWay."""
    unknown = sorted((features.names or frozenset()) - FEATURES)
    if unknown:
        raise AnotherWay(f"the table has the feature {unknown[0]}")
    if features.names is None and features.writer_version > LEGACY_WRITER:
        raise AnotherWay(f"the table has writer version {features.writer_version}")
    if unknown_here := unknown_properties(properties):
        raise AnotherWay(f"the table has the property {unknown_here[0]}")
    if not appends and properties.get("delta.appendOnly", "false").lower() == "true":
        raise AnotherWay("the table takes nothing but appends")


def require_same_layout(table: DeltaProbe, partition_by: Sequence[str]) -> None:
    """A table whose rows and columns are exchanged stays partitioned, and owes nobody a feed. Raises AnotherWay."""
    if table.partitions() != list(partition_by):
        raise AnotherWay("the table is partitioned otherwise from now on")
    if table.feed_is_on():
        raise AnotherWay("the table has a feed, and its columns may change")


def unknown_properties(properties: Mapping[str, str]) -> list[str]:
    """Names of Delta's own properties that may ask for more than is known here."""
    off = {name for name in SWITCHED_OFF if properties.get(name, "false").lower() == "false"}
    return sorted(name for name in properties.keys() - PROPERTIES - off if name.startswith("delta."))


def require_plain_columns(table: StructType) -> None:
    """No column is checked, filled in or kept in a way of its own. Raises AnotherWay."""
    for column in all_fields(table):
        for name in own_properties(column) - {"comment"}:
            raise AnotherWay(f"column {column.name} has the property {name}")
        if "." in column.name:
            raise AnotherWay(f"column {column.name} has a dot in its name")
    for column in table.fields:
        require_exact(column.name, column.dataType)


def require_no_features(table: StructType) -> None:
    """A table of these columns needs no feature, and they bring nothing of their own into it. Raises AnotherWay."""
    for column in all_fields(table):
        for name in own_properties(column):
            raise AnotherWay(f"column {column.name} brings the property {name} into a new table")
        if NO_TIME_ZONE in column.dataType.json():
            raise AnotherWay(f"column {column.name} needs a feature of the new table")
        if REFUSED_IN_NAMES & set(column.name) or column.name.lower() in NAMES_OF_FEED:
            raise AnotherWay(f"Spark judges whether a new table may have a column that is called {column.name}")


def own_properties(column: StructField) -> set[str]:
    """What is noted of a column, without what says nothing."""
    is_any_text = column.metadata.get(TEXT_LENGTH) == ANY_LENGTH
    return set(column.metadata) - FROM_DATABASES - ({TEXT_LENGTH} if is_any_text else set())


def require_nullable(table: StructType) -> None:
    """No column of the table has to be filled. Raises AnotherWay."""
    for column in all_fields(table):
        if not column.nullable:
            raise AnotherWay(f"column {column.name} must not be NULL")


def require_types(columns: StructType, names: Iterable[str], use: str) -> None:
    """These columns, in this spelling, have types that the log has exactly. Raises AnotherWay."""
    kinds = {column.name: column.dataType for column in columns.fields}
    for name in names:
        kind = kinds.get(name)
        if kind is None or type_name(kind) not in KEY_TYPES:
            raise AnotherWay(f"the table {use} {name}, which is {kind.simpleString() if kind else 'no column'}")


def require_ordered(rows: StructType, names: Iterable[str]) -> None:
    """The values of these columns are ordered here as Spark orders them. Raises AnotherWay."""
    for column in rows.fields:
        described = column.dataType.json()
        if column.name in names and any(word in described for word in ("float", "double", "collat", "map", "variant")):
            raise AnotherWay(f"rows are ordered by {column.name}, for which Spark has an order of its own")


def require_few_bytes_before(sizes: Sequence[int], last: Commit | None) -> None:
    """The table is small, or the last batch did not touch large files in it. Raises AnotherWay.

    Which files a batch may touch is known once its keys are; those of one source lie where its last ones lay.
    """
    if sum(sizes) <= REWRITTEN_BYTES or last is None or last.is_native:
        return
    if last.metrics.get(BYTES_REMOVED, REWRITTEN_BYTES + 1) > REWRITTEN_BYTES:
        raise AnotherWay("the table is large, and the batch before rewrote large files of it")


def require_few_bytes(files: pa.Table, rows: pa.Table, key: Sequence[str]) -> None:
    """The files that may have a key of the rows are not large. Raises AnotherWay.

    By the lowest and highest value of each file, as far as the log has them.
    """
    import pyarrow.compute as pc

    sizes = files.column("size_bytes")
    if (pc.sum(sizes).as_py() or 0) <= REWRITTEN_BYTES or not rows.num_rows:
        return
    touched = pc.is_valid(sizes)
    for name in key:
        ends = pc.min_max(rows[name])
        low, high = (f"min.{name}", f"max.{name}")
        if low in files.column_names and high in files.column_names:
            below = pc.fill_null(pc.less(files[high], ends["min"]), False)
            above = pc.fill_null(pc.greater(files[low], ends["max"]), False)
            touched = pc.and_not(touched, pc.or_(below, above))
    touched_bytes = pc.sum(sizes.filter(touched)).as_py() or 0
    if touched_bytes > REWRITTEN_BYTES:
        raise AnotherWay(f"files of {touched_bytes:,} bytes may have to be written anew")


def require_partition_values(rows: pa.Table, partitions: Iterable[str]) -> None:
    """No row goes into the partition of an empty text, which Spark takes for NULL. Raises AnotherWay."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in partitions:
        values = rows[name] if name in rows.column_names else None
        if values is not None and pa.types.is_string(values.type) and pc.any(pc.equal(values, "")).as_py():
            raise AnotherWay(f"a row has an empty {name}, by which the table is partitioned")


def require_exact(name: str, kind: DataType) -> None:
    """Arrow and Parquet hold every value of the type as Spark has it. Raises AnotherWay."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, StructType):
        inner: Sequence[DataType] = [each.dataType for each in kind.fields]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, DecimalType) or type_name(kind) in PLAIN_TYPES:
        return
    else:
        raise AnotherWay(f"column {name} is {kind.simpleString()}")
    for each in inner:
        require_exact(name, each)


def require_same_types(rows: StructType, table: StructType) -> None:
    """Every column of the rows is in the table, with the very same type. Raises AnotherWay."""
    kinds = {column.name.lower(): column.dataType for column in table.fields}
    for column in rows.fields:
        held = kinds.get(column.name.lower())
        if held is None or held.simpleString() != column.dataType.simpleString():
            raise AnotherWay(f"column {column.name} is another one in the table")


def type_name(kind: DataType) -> str:
    """As Delta writes it; a string that compares otherwise than by its bytes has a name of its own."""
    return kind.json().strip('"')


def all_fields(table: StructType) -> Iterator[StructField]:
    """The columns, and those inside of them."""
    from pyspark.sql.types import StructType

    for column in table.fields:
        yield column
        for inner in inner_types(column.dataType):
            yield from all_fields(inner) if isinstance(inner, StructType) else ()


def inner_types(kind: DataType) -> Iterator[DataType]:
    """The type, with those that it is made of."""
    from pyspark.sql.types import ArrayType, MapType

    yield kind
    parts = (
        (kind.elementType,)
        if isinstance(kind, ArrayType)
        else (kind.keyType, kind.valueType)
        if isinstance(kind, MapType)
        else ()
    )
    for part in parts:
        yield from inner_types(part)


def without_statistics(table: StructType, above: str = "") -> list[str]:
    """Columns, inner ones with a dot, whose lowest and highest value the log would not have exactly.

    Spark counts NaN as the highest value, and the writer leaves it out; long decimals become floats; of times without a
    zone it has another spelling.
    """
    from pyspark.sql.types import DecimalType, StructType

    names = []
    for column in table.fields:
        kind, name = column.dataType, f"{above}{column.name}"
        if isinstance(kind, StructType):
            names += without_statistics(kind, f"{name}.")
        is_long = isinstance(kind, DecimalType) and kind.precision > EXACT_DIGITS
        if is_long or type_name(kind) in ("float", "double", NO_TIME_ZONE):
            names.append(name)
    return names
