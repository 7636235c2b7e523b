"""Marks: how far something was read, as immutable values; where they are kept is another layer's matter."""

from floodmark.hwm.columns import ColumnDateHWM, ColumnDateTimeHWM, ColumnDecimalHWM, ColumnHWM, ColumnIntHWM
from floodmark.hwm.composite import CompositeHWM
from floodmark.hwm.file_list import FileListHWM, FileStat
from floodmark.hwm.file_time import FileModifiedTimeHWM, FileMoment
from floodmark.hwm.frozen import FrozenMap
from floodmark.hwm.itemised import Itemised
from floodmark.hwm.key_value import KeyValueHWM, KeyValueIntHWM
from floodmark.hwm.kinds import kind_of, register
from floodmark.hwm.mark import HWM, Json, deserialize
from floodmark.hwm.ordered import OrderedHWM
from floodmark.hwm.span import Span, digest
from floodmark.hwm.table_versions import TableVersionsHWM
from floodmark.hwm.text import ColumnTextHWM
from floodmark.hwm.topic_offsets import TopicOffsetsHWM
from floodmark.hwm.version import VersionHWM

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
    "kind_of",
    "register",
]
