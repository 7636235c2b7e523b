"""Marks: how far something was read, as immutable values; where they are kept is another layer's matter."""

from floodmark.hwm.columns import (
    ColumnDateHWM,
    ColumnDateTimeHWM,
    ColumnDecimalHWM,
    ColumnHWM,
    ColumnIntHWM,
    ColumnTextHWM,
    OrderedHWM,
    VersionHWM,
)
from floodmark.hwm.composite import CompositeHWM
from floodmark.hwm.files import FileListHWM, FileModifiedTimeHWM, FileMoment, FileStat
from floodmark.hwm.maps import FrozenMap, KeyValueHWM, KeyValueIntHWM, TableVersionsHWM, TopicOffsetsHWM
from floodmark.hwm.mark import (
    HWM,
    Growing,
    Itemised,
    Json,
    Span,
    deserialize,
    digest,
    is_same_batch,
    kind_of,
    owner_in,
    register,
    signed_digest,
)

__all__ = [
    "HWM",
    "ColumnDateHWM",
    "ColumnDateTimeHWM",
    "ColumnDecimalHWM",
    "ColumnHWM",
    "ColumnIntHWM",
    "ColumnTextHWM",
    "CompositeHWM",
    "FileListHWM",
    "FileModifiedTimeHWM",
    "FileMoment",
    "FileStat",
    "FrozenMap",
    "Growing",
    "Itemised",
    "Json",
    "KeyValueHWM",
    "KeyValueIntHWM",
    "OrderedHWM",
    "Span",
    "TableVersionsHWM",
    "TopicOffsetsHWM",
    "VersionHWM",
    "deserialize",
    "digest",
    "is_same_batch",
    "kind_of",
    "owner_in",
    "register",
    "signed_digest",
]
