"""Which SQL is known to give the same rows again."""

from __future__ import annotations

import pytest

from floodmark.step import Sql
from floodmark.step.repeatable import (
    AGGREGATES,
    GENERATORS,
    OTHER_AGGREGATES,
    REPEATABLE,
    VOLATILE,
    volatile_calls,
    why_expression_volatile,
    why_volatile,
    words,
)

BUILTINS = words(
    """
    ! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ abs acos acosh add_months aes_decrypt aes_encrypt
    aggregate and any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine approx_top_k_estimate array array_agg array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min array_position
    array_prepend array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii
    asin asinh assert_true atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count bit_get
    bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg
    bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim cardinality case cast cbrt ceil ceiling
    char char_length character_length chr coalesce collate collation collations collect_list collect_set concat
    concat_ws contains conv convert_timezone corr cos cosh cot count count_if count_min_sketch covar_pop
    covar_samp crc32 csc cume_dist curdate current_catalog current_database current_date current_path
    current_schema current_time current_timestamp current_timezone current_user date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
    dayofmonth dayofweek dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith
    equal_null every exists exp explode explode_outer expm1 extract factorial filter find_in_set first
    first_value flatten float floor forall format_number format_string from_avro from_csv from_json
    from_protobuf from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest grouping
    grouping_id hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hour hypot
    if ifnull ilike in initcap inline inline_outer input_file_block_length input_file_block_start
    input_file_name instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull java_method
    json_array_length json_object_keys json_tuple kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
    kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last
    last_day last_value lcase lead least left len length levenshtein like listagg ln localtimestamp locate log
    log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
    mask max max_by md5 mean measure median min min_by minute mod mode monotonically_increasing_id month
    monthname months_between named_struct nanvl negative next_day not now nth_value ntile nullif nullifzero nvl
    nvl2 octet_length or overlay parse_json parse_url percent_rank percentile percentile_approx percentile_cont
    percentile_disc pi pmod posexplode posexplode_outer position positive pow power printf python_worker_logs
    quarter quote radians raise_error rand randn random randstr range rank reduce reflect regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint
    rlike round row_number rpad rtrim schema_of_avro schema_of_csv schema_of_json schema_of_variant
    schema_of_variant_agg schema_of_xml sec second sentences sequence session_user session_window sha sha1 sha2
    shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh size skewness slice smallint some
    sort_array soundex space spark_partition_id split split_part sql_keywords sqrt st_asbinary st_geogfromwkb
    st_geomfromwkb st_setsrid st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string
    string_agg struct substr substring substring_index sum tan tanh theta_difference theta_intersection
    theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time time_bucket
    time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds
    time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint to_avro to_binary to_char
    to_csv to_date to_json to_number to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys
    transform_values translate trim trunc try_add try_aes_decrypt try_avg try_divide try_element_at
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply
    try_parse_json try_parse_url try_reflect try_subtract try_sum try_to_binary try_to_date try_to_number
    try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get tuple_difference_double
    tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
    tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer tuple_union_double
    tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex uniform
    unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode user uuid
    validate_utf8 var_pop var_samp variance variant_explode variant_explode_outer variant_get vector_avg
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    version weekday weekofyear when width_bucket window window_time xpath xpath_boolean xpath_double xpath_float
    xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with | || ~
    """
)
"""What `SHOW FUNCTIONS` answers in Spark 4.2."""
LEFT_OUT = words(
    """
    approx_count_distinct approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate
    collate collation collations corr count_min_sketch covar_pop covar_samp cume_dist from_protobuf
    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg java_method kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
    kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
    kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
    kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float
    kurtosis measure percent_rank python_worker_logs reflect regr_avgx regr_avgy regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg session_window skewness sql_keywords std stddev
    stddev_pop stddev_samp theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
    theta_sketch_estimate theta_union theta_union_agg to_protobuf try_avg try_reflect try_sum
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double
    tuple_difference_theta_integer tuple_intersection_agg_double tuple_intersection_agg_integer
    tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
    tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double
    tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer var_pop var_samp variance vector_avg vector_sum
    """
)
"""Builtins that depend on the order of rows, the session or the world outside, without a reason of their own."""
SIGNS = frozenset(name for name in BUILTINS if not name[0].isalpha())
WORDS_THAT_SPARK_PARSES = {"timestampadd", "timestampdiff", "try_cast"}


def test_every_builtin_of_spark_is_in_one_set_by_a_decision() -> None:
    """A new version of Spark brings new functions: each has to be judged before it counts as repeatable."""
    refused = LEFT_OUT | (VOLATILE.keys() & BUILTINS)
    assert BUILTINS - SIGNS - REPEATABLE - refused == frozenset()
    assert REPEATABLE & refused == frozenset()
    assert REPEATABLE - BUILTINS == WORDS_THAT_SPARK_PARSES
    assert GENERATORS | AGGREGATES <= REPEATABLE
    assert refused >= OTHER_AGGREGATES


@pytest.mark.parametrize("call", ["{}()", "{} (a)", "`{}`(a, 1)", "count({}(distinct a))"])
def test_a_function_outside_the_list_is_volatile_however_it_is_called(call: str) -> None:
    """sqlglot has other classes for other numbers of arguments; the name as it was written decides."""
    outside = LEFT_OUT | VOLATILE.keys()
    query = f"select {', '.join(map(call.format, sorted(outside)))} from source"
    assert volatile_calls(query).keys() == outside


def test_a_function_of_the_list_is_not() -> None:
    """A query of builtins needs no spool."""
    calls = ", ".join(f"{name.upper()}(a)" for name in sorted(REPEATABLE))
    assert volatile_calls(f"select {calls} from source") == {}


@pytest.mark.parametrize(
    "query",
    [
        "select id, sum(v) over (partition by k) as s from source",
        "select id, max(v) over w as m from source window w as (order by d rows 2 preceding)",
        "select id from source order by id offset 3",
        "select id from source order by id limit 3",
        "select id from source fetch first 3 rows only",
        "select * from source tablesample (10 percent)",
        "select transform(id) using 'cat' as (x) from source",
        "select max(name collate utf8_lcase) as name from source",
        "select id, unix_timestamp() as t from source",
        "select id, cast('now' as timestamp) as t from source",
        "select id from source where day = 'today'",
        "select id, timestamp 'now' as t from source",
        "select id, user from source",
        "select id, CURRENT_DATE from source",
        "select lake.upper(name) from source",
        "select spark_catalog.lake.upper(name) from source",
        "select * from source pivot (first(v) for k in ('a', 'b'))",
        "select k, string_agg(v, ',') within group (order by t) as v from source group by k",
        "select percentile_approx(v, 0.5) from source",
    ],
)
def test_a_choice_among_rows_a_clock_or_a_session_is_volatile(query: str) -> None:
    """Also without parentheses, in a text that Spark takes for a moment, and in a user's function of a known name."""
    assert not Sql(query).is_deterministic()


@pytest.mark.parametrize(
    "query",
    [
        "select s.id, d.name from source s join lake.customers d on s.id = d.id",
        "select s.id, d.name from source s join delta.`/lake/customers` d on s.id = d.id",
        "select s.id, d.name from source s join spark_catalog.default.customers d using (id)",
        "select * from source where id in (select id from lake.blocked)",
        "select * from source where exists (select 1 from blocked b where b.id = source.id)",
        "select * from x.source",
        "select *, (select max(rate) from rates) as rate from source",
        "with source as (select * from source), b as (select * from rates) select * from source, b",
        "select * from (with rates as (select 1 as r) select * from rates) x, rates, source",
        "with a as (select * from b), b as (select * from source) select * from a",
        "select * from source union all select * from parquet.`/old`",
        "select * from source, read_files('/in')",
        "select * from source, table_changes('t', 1)",
        "select * from identifier('lake.customers')",
        "select a from source, table(lake.f(1))",
    ],
)
def test_a_query_that_reads_another_table_is_volatile(query: str) -> None:
    """No mark covers that table, and it may be another one when the batch is finished."""
    assert not Sql(query).is_deterministic()


@pytest.mark.parametrize(
    "query",
    [
        "select * from source s where id in (select max(id) from source t where t.k = s.k)",
        "with source as (select * from source where n > 1) select id from source",
        "with recursive r as (select id, parent from source) select count(*) as n from r group by all",
        "select id, item.name from source lateral view explode(items) t as item",
        "select id, x from source, lateral explode(xs) as t(x)",
        "with big(id, n) as (select id, count(distinct v) from source group by id having count(*)>1) select * from big",
        "select n.id, s.id from source s cross join range(3) n",
        "select a, b from source unpivot (b for a in (x, y))",
        "select k, max(case when kind in ('a', 'b') then v end) as v from source group by grouping sets ((k), ())",
        "select cast(v as decimal(10, 2)) as v, try_cast(w as int) as w, x::varchar(5) as x from source",
        "select offset, partition, s.user, version from source s",
        "select transform(xs, x -> x + 1) as ys, filter(xs, x -> x > 0) as zs from source",
        "select date_trunc('day', t) as day, unix_timestamp(t) as s, to_date(d, 'yyyy') as d from source",
        "select count(*) filter (where v > 0) as n, count_if(v is null) as m from source",
        "select id, :batch_time as at, name as user from source where not (v > 1 or (w between 1 and 2))",
        "select distinct (id) from source order by id desc nulls last",
        "select id from source where (a, b) in (select a, b from source)",
        "select coalesce(a, b), if(a > b, 1, 0), a || 'now or never', nvl(a, 'x') from source",
    ],
)
def test_a_query_of_the_source_and_known_functions_repeats(query: str) -> None:
    """Whatever its shape is: such a batch needs no spool."""
    assert why_volatile(query, ["source"]) is None


def test_of_several_sources_each_is_known_by_its_name() -> None:
    """A table called `source` is then not one of them."""
    joined = Sql("select o.id, c.name from orders o join Customers c on o.customer = c.id")
    assert not joined.is_deterministic()
    assert joined.over(["orders", "customers"]).is_deterministic()
    assert not Sql("select * from source").over(["orders", "customers"]).is_deterministic()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select max_by(a, b), my_own(c) from source", "it asks max_by, my_own"),
        ("select * from source, lake.rates", "it reads lake.rates"),
        ("select * from source order by id limit 1", "it chooses among rows (limit)"),
    ],
)
def test_the_reason_names_what_is_volatile(query: str, reason: str) -> None:
    """`lint` prints it, so a user can change it."""
    assert Sql(query).why_volatile() == reason


@pytest.mark.parametrize(
    ("condition", "is_known"),
    [
        ("amount > 0 and length(trim(name)) between 1 and 20", True),
        ("rand() > 0.5", False),
        ("seen_at < now()", False),
        ("id not in (select id from lake.blocked)", False),
        ("day <= 'today'", False),
        ("my_check(id)", False),
        ("this is no SQL (", False),
    ],
)
def test_an_expression_is_judged_as_a_query_is(condition: str, is_known: bool) -> None:
    """Rules and the columns of a dimension are expressions; one of them reads no table at all."""
    assert (why_expression_volatile(condition) is None) is is_known


@pytest.mark.parametrize(
    ("query", "keeps"),
    [
        ("select id, upper(name) as name from source", True),
        ("select id from source where id > 1", False),
        ("select explode(xs) as x from source", False),
        ("select my_own(xs) as x from source", False),
        ("select distinct id from source", False),
        ("select count(*) as n from source", False),
        ("select id from source limit 5", False),
        ("select id from source offset 5", False),
        ("select every(b) as b from source", False),
        ("select regr_count(a, b) as n from source", False),
        ("select bitmap_construct_agg(a) as n from source", False),
        ("select window(t, '2 hours', '1 hour') as w, id from source", False),
        ("select * from source unpivot (b for a in (x, y))", False),
        ("select * from source tablesample (10 percent)", False),
        ("select id from source union all select id from source", False),
    ],
)
def test_only_a_plain_list_of_columns_keeps_every_row(query: str, keeps: bool) -> None:
    """Then as many rows are handed to the sinks as were read, and they can be compared."""
    assert Sql(query).keeps_every_row() is keeps
