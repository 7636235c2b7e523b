"""Which SQL gives the same rows again over the same rows: every call is on a list, every table is the source.

The list is of what is allowed. Whatever it does not name (a new builtin, a user's function, syntax that nobody thought
of) counts as volatile: such a batch is frozen, which costs a little; the other mistake would cost rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.inputs import parse_mistake, parse_sql, sql_tokens

if TYPE_CHECKING:
    from sqlglot import Token, exp


Volatility = Literal["clock", "chance", "partition", "session", "order", "unknown"]


def words(text: str) -> frozenset[str]:
    """A list of names that can be read."""
    return frozenset(text.split())


VOLATILE: Mapping[str, Volatility] = {
    **dict.fromkeys(
        words("""
        curdate current_date current_time current_timestamp getdate localtime localtimestamp now
        """),
        "clock",
    ),
    **dict.fromkeys(words("aes_encrypt rand randn random randstr shuffle uniform uuid"), "chance"),
    **dict.fromkeys(
        words("""
        input_file_block_length input_file_block_start input_file_name monotonically_increasing_id
        spark_partition_id
        """),
        "partition",
    ),
    **dict.fromkeys(
        words("""
        current_catalog current_database current_path current_schema current_timezone current_user
        session_user user version
        """),
        "session",
    ),
    **dict.fromkeys(
        words("""
        any_value approx_percentile array_agg avg collect_list collect_set dense_rank first first_value
        histogram_numeric lag last last_value lead listagg max_by mean min_by mode nth_value ntile
        percentile_approx rank row_number string_agg sum
        """),
        "order",
    ),
}
"""Functions that may answer otherwise the second time, where the reason can be told; all others are "unknown"."""
REPEATABLE = words(
    """
    abs acos acosh add_months aes_decrypt aggregate and any array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min array_position
    array_prepend array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin
    asinh assert_true atan atan2 atanh base64 between bigint bin binary bit_and bit_count bit_get bit_length
    bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count
    bitmap_or_agg bool_and bool_or boolean bround btrim cardinality case cast cbrt ceil ceiling char char_length
    character_length chr coalesce concat concat_ws contains conv convert_timezone cos cosh cot count count_if
    crc32 csc date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e element_at
    elt encode endswith equal_null every exists exp explode explode_outer expm1 extract factorial filter
    find_in_set flatten float floor forall format_number format_string from_avro from_csv from_json from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit greatest grouping grouping_id hash hex hour hypot if
    ifnull ilike in initcap inline inline_outer instr int is_valid_utf8 is_valid_variant is_variant_null isnan
    isnotnull isnull json_array_length json_object_keys json_tuple last_day lcase least left len length
    levenshtein like ln locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval
    make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval
    map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with mask max md5 median min minute mod month monthname months_between named_struct nanvl negative
    next_day not nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percentile
    percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow power printf quarter
    quote radians raise_error range reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr regr_count repeat replace reverse right rint rlike round rpad rtrim
    schema_of_avro schema_of_csv schema_of_json schema_of_variant schema_of_xml sec second sentences sequence sha
    sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint some sort_array
    soundex space split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack
    startswith str_to_map string struct substr substring substring_index tan tanh time time_bucket time_diff
    time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_avro
    to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys
    transform_values translate trim trunc try_add try_aes_decrypt try_cast try_divide try_element_at
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply
    try_parse_json try_parse_url try_subtract try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex unix_date unix_micros unix_millis
    unix_seconds unix_timestamp upper url_decode url_encode validate_utf8 variant_explode variant_explode_outer
    variant_get vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
    weekday weekofyear when width_bucket window window_time xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """
)
"""Spark's functions whose answer depends on their arguments alone, and aggregates that no order of rows can change.

Sums and averages are not among them: of floating-point numbers they depend on the order. Nor are sketches.
"""
GENERATORS = words(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack variant_explode
    variant_explode_outer window window_time
    """
)
"""Repeatable, but they make several rows of one, or none."""
AGGREGATES = words(
    """
    any bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or count count_if every
    grouping grouping_id max median min percentile percentile_cont percentile_disc regr_count some
    """
)
"""Repeatable, but they make one row of many."""
OTHER_AGGREGATES = words(
    """
    any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg collect_list collect_set corr count_min_sketch covar_pop covar_samp first first_value
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max_by mean
    measure min_by mode percentile_approx regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy schema_of_variant_agg skewness std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
    theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double tuple_intersection_agg_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp
    variance vector_avg vector_sum
    """
)
"""The aggregates of Spark that are not known to be repeatable; sqlglot takes many of both for functions of a row."""
SYNTAX = words(
    """
    all as by char character cube dec distinct else except for from group having intersect join lateral minus numeric
    on pivot rollup select sets table then union unpivot using values varchar where with within
    """
)
"""Words that stand before a parenthesis and call nothing; what they do to the rows is seen in the parsed query."""
WITHOUT_PARENTHESES = words(
    """
    current_catalog current_date current_schema current_time current_timestamp current_user localtime localtimestamp
    session_user user
    """
)
"""Spark takes such a name for the function if there is no column of that name, which only Spark knows."""
MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
"""A text that Spark reads as the clock where it becomes a date or a time."""
CHOOSING = ("Limit", "Offset", "Fetch", "TableSample", "Window", "Collate", "QueryTransform", "Version")
"""Classes of sqlglot for syntax that chooses among rows, or leaves Spark: the next time may see others."""


def volatile_calls(sql: str) -> dict[str, Volatility]:
    """The calls in a query or an expression that may answer otherwise the second time, and why."""
    calls = {name: VOLATILE.get(name, "unknown") for name in called_names(sql) if name not in REPEATABLE}
    return calls | dict(_hidden_calls(sql))


def why_volatile(sql: str, sources: Collection[str] = ()) -> str | None:
    """Why the query, or the expression, is not known to give the same again; None if it is.

    Raises ConfigError if it cannot be parsed.
    """
    calls = sorted(volatile_calls(sql))
    if calls:
        return f"it asks {', '.join(calls)}"
    known = {name.lower() for name in sources}
    others = sorted({table_name(table) for table in tables_read(parse(sql)) if table_name(table).lower() not in known})
    if others:
        return f"it reads {', '.join(others)}"
    chosen = sorted({type(node).__name__ for node in parse(sql).walk()} & set(CHOOSING))
    return f"it chooses among rows ({', '.join(chosen).lower()})" if chosen else None


def why_expression_volatile(sql: str) -> str | None:
    """As `why_volatile`, for an expression over one row; what cannot be parsed here is Spark's to refuse."""
    try:
        return why_volatile(f"select {sql}")
    except ConfigError:
        return "it cannot be parsed"


def makes_other_rows(sql: str) -> bool:
    """Whether something in the list of a SELECT may make several rows of one, or one of several."""
    return any(name in GENERATORS | AGGREGATES or name not in REPEATABLE for name in called_names(sql))


def aggregates(sql: str) -> bool:
    """Whether it calls an aggregate of Spark, which makes one row of many also where nothing is grouped."""
    return bool(called_names(sql) & (AGGREGATES | OTHER_AGGREGATES))


def calls_unknown(sql: str) -> bool:
    """Whether it calls a function that is none of Spark's: a user's, which may be an aggregate as well."""
    known = REPEATABLE | OTHER_AGGREGATES | VOLATILE.keys()
    return bool(called_names(sql) - known)


def called_names(sql: str) -> set[str]:
    """Every name before a parenthesis that is no syntax, as it was written: sqlglot has names of its own for many."""
    tokens, found = tokens_of(sql), Counter[str]()
    for place, (name, after) in enumerate(pairwise(tokens)):
        if after.text != "(" or not _may_be_called(name):
            continue
        if place and tokens[place - 1].text == ".":  # of a schema: a user's, whatever it is called
            found[f"{tokens[place - 2].text}.{name.text}".lower()] += 1
        else:
            found[name.text.lower()] += 1
    return set(found - _column_lists(sql)) if found.keys() - REPEATABLE else set(found)


def _may_be_called(token: Token) -> bool:
    """A name in quotes is one, whatever it says; else syntax, signs, texts and numbers are none."""
    kind, text = token.token_type.name, token.text.lower()
    if kind == "IDENTIFIER":
        return True
    is_word = kind not in ("STRING", "RAW_STRING", "NUMBER") and text.replace(" ", "_").isidentifier()
    return is_word and text.split()[-1] not in SYNTAX


def _column_lists(sql: str) -> Counter[str]:
    """Names of the query's own that have their columns in parentheses, as in `explode(xs) as t(x)`: no calls."""
    from sqlglot import exp

    try:
        aliases = parse(sql).find_all(exp.TableAlias)
    except ConfigError:  # whoever needs the tables will say so
        return Counter()
    return Counter(alias.name.lower() for alias in aliases if alias.name and alias.columns)


def _hidden_calls(sql: str) -> Iterator[tuple[str, Volatility]]:
    """Calls without parentheses, and what is a call only with, or without, an argument."""
    tokens = tokens_of(sql)
    for place, token in enumerate(tokens):
        kind, name = token.token_type.name, token.text.lower()
        before = tokens[place - 1].text.lower() if place else ""
        after = [each.text for each in tokens[place + 1 : place + 3]]
        if kind in ("STRING", "RAW_STRING"):
            if MOMENT.fullmatch(token.text):
                yield f"'{token.text}'", "clock" if before in ("date", "timestamp") else "unknown"
        elif name == "unix_timestamp" and after == ["(", ")"]:
            yield name, "clock"
        elif name in WITHOUT_PARENTHESES and before not in (".", "as") and after[:1] != ["("]:
            yield name, VOLATILE[name]


def tables_read(tree: exp.Expr) -> Iterator[exp.Table]:
    """The tables of a query that it does not define itself; a function that gives rows is none."""
    from sqlglot import exp

    aliases = {id(each): [cte.alias.lower() for cte in each.expressions] for each in tree.find_all(exp.With)}
    defined = {name for names in aliases.values() for name in names}  # asked first: looking up from a table is slow
    for table in tree.find_all(exp.Table):
        is_own = table.name.lower() in defined and not table.db and _is_defined(table, aliases)
        if isinstance(table.this, exp.Identifier) and not is_own:
            yield table


def _is_defined(table: exp.Table, aliases: Mapping[int, Sequence[str]]) -> bool:
    """Whether a common table expression that is in sight has its name; one sees those before it, and not itself.

    `aliases` has the names that each WITH of the query defines.
    """
    from sqlglot import exp

    node: exp.Expr = table
    while node.parent is not None:
        inside, node = node, node.parent
        names: Sequence[str] = ()
        if isinstance(node, exp.With):
            place = next(place for place, each in enumerate(node.expressions) if each is inside)
            names = aliases[id(node)][: place + bool(node.args.get("recursive"))]
        elif isinstance(node.args.get("with_"), exp.With) and inside is not node.args["with_"]:
            names = aliases[id(node.args["with_"])]
        if table.name.lower() in names:
            return True
    return False


def table_name(table: exp.Table) -> str:
    """Its name with catalog and schema, as far as they are written."""
    return ".".join(part.name for part in table.parts)


@lru_cache(maxsize=64)
def parse(sql: str) -> exp.Expr:
    """The query as a tree, which nobody may change. Raises ConfigError."""
    from sqlglot.errors import SqlglotError

    try:
        return parse_sql(sql)
    except SqlglotError as error:
        hint = "fix the SQL; it is Spark's dialect"
        raise ConfigError(f"{parse_mistake(error)}.", hint=hint) from error


def tokens_of(sql: str) -> list[Token]:
    """The words and signs of the query. Raises ConfigError."""
    from sqlglot.errors import SqlglotError

    try:
        return sql_tokens(sql)
    except SqlglotError as error:
        raise ConfigError(f"{parse_mistake(error)}.", hint="fix the SQL; it is Spark's dialect") from error
