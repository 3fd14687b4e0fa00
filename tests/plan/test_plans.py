"""Plans of right files: what drives what, in which order, and which query runs."""

from pathlib import Path

import pyarrow as pa
import pytest
from sqlglot import exp
from tests.plan.planning import HEAD, plan_of

from millpond.app.planning import plan_text
from millpond.contracts.source import Mode
from millpond.plan.model import AccessKind, Plan, Step, StepKind, TableKind, TablePlan
from millpond.sql.spark import render


def good(text: str, found: dict[str, str] | None = None) -> Plan:
    """The plan of a text after HEAD that has no error."""
    plan = plan_of(HEAD + text, found)
    assert [str(p) for p in plan.errors] == []
    return plan


def last_step(plan: Plan) -> Step:
    return max((s for f in plan.flows for s in f.steps), key=lambda s: s.index)


def table(plan: Plan, name: str) -> TablePlan:
    found = plan.table(name)
    assert found is not None
    return found


def test_a_star_becomes_columns_and_every_output_has_a_name() -> None:
    step = last_step(good("INSERT INTO 'file://./o' SELECT q.*, upper(symbol) FROM quotes q;"))
    assert render(step.query) == (
        "SELECT `q`.`symbol` AS `symbol`, `q`.`bid` AS `bid`, `q`.`ts` AS `ts`, UPPER(`q`.`symbol`) AS `upper(symbol)` "
        "FROM `__batch__` AS `q`"
    )
    assert [str(c) for c in step.schema] == [
        "symbol STRING",
        "bid DECIMAL(12,2)",
        "ts TIMESTAMP",
        "upper(symbol) STRING",
    ]


def test_outputs_keep_the_case_of_the_declaration() -> None:
    step = last_step(good("CREATE STREAM s (UserId STRING) FROM 'file://./s.jsonl'; SELECT USERID FROM s;"))
    assert step.schema.names == ("UserId",)


def test_hidden_columns_are_read_by_name_and_never_part_of_a_star() -> None:
    step = last_step(good("SELECT _source, q.* FROM quotes q;"))
    assert step.schema.names == ("_source", "symbol", "bid", "ts")


def test_equal_names_of_a_bare_select_are_distinguished() -> None:
    step = last_step(good("SELECT t.user_id, u.user_id FROM trades t JOIN users u ON t.user_id = u.user_id;"))
    assert step.schema.names == ("user_id", "u.user_id")


def test_using_joins_two_columns_into_one() -> None:
    step = last_step(
        good("SELECT * FROM trades t JOIN users USING (user_id) WHERE user_id = 'A' AND users.tier = 'x';")
    )
    assert step.schema.names.count("user_id") == 1
    assert "ON `t`.`user_id` = `users`.`user_id`" in render(step.query)
    assert "WHERE `t`.`user_id` = 'A'" in render(step.query)


def test_a_full_join_using_takes_whichever_is_there() -> None:
    step = last_step(good("SELECT user_id FROM trades FULL JOIN users USING (user_id);"))
    assert "COALESCE(`trades`.`user_id`, `users`.`user_id`) AS `user_id`" in render(step.query)


def test_a_derived_stream_is_inlined() -> None:
    plan = good("CREATE STREAM big AS SELECT symbol, quantity FROM trades WHERE quantity > 100; SELECT * FROM big b;")
    assert render(last_step(plan).query) == (
        "SELECT `b`.`symbol` AS `symbol`, `b`.`quantity` AS `quantity` FROM (SELECT `trades`.`symbol` AS `symbol`, "
        "`trades`.`quantity` AS `quantity` FROM `__batch__` AS `trades` WHERE `trades`.`quantity` > 100) AS `b`"
    )
    assert next(s for s in plan.streams if s.name == "big").derived


def test_tables_inside_a_derived_stream_are_read_by_its_flow() -> None:
    plan = good(
        "CREATE STREAM named AS SELECT t.symbol, u.name FROM trades t JOIN users u ON u.user_id = t.user_id;"
        "SELECT * FROM named;"
    )
    assert [a.table for a in last_step(plan).reads] == ["users"]


def test_statements_may_stand_in_any_order() -> None:
    text = "SELECT * FROM late; CREATE TABLE late AS SELECT k FROM later; CREATE TABLE later (k INT);"
    plan = plan_of(text)
    assert plan.errors == ()
    assert [t.name for t in plan.tables] == ["dead_letters", "later", "late"]


def test_correlated_subqueries_see_the_query_around_them() -> None:
    step = last_step(
        good(
            "SELECT t.user_id, (SELECT max(n) FROM totals x WHERE x.user_id = t.user_id) AS m FROM trades t "
            "WHERE t.quantity > ANY (SELECT n FROM notes WHERE text = symbol) "
            "AND EXISTS (SELECT 1 FROM users WHERE user_id = t.user_id);"
        )
    )
    text = render(step.query)
    assert "WHERE `x`.`user_id` = `t`.`user_id`" in text
    assert "WHERE `notes`.`text` = `t`.`symbol`" in text
    assert "WHERE `users`.`user_id` = `t`.`user_id`" in text
    assert step.schema["m"].type == pa.int64()
    assert [a.table for a in step.reads] == ["notes", "users", "totals"]


def test_a_lateral_view_adds_its_columns() -> None:
    step = last_step(good("SELECT symbol, pos, tag FROM trades LATERAL VIEW posexplode(tags) e AS pos, tag;"))
    assert [str(c) for c in step.schema] == ["symbol STRING", "pos INT", "tag STRING"]


def test_an_alias_of_the_select_list_is_seen_by_later_outputs_and_clauses() -> None:
    plan = good(
        "SELECT age + 1 AS a, a * 2 AS b FROM users ORDER BY b;"
        "SELECT tier AS t, COUNT(*) AS n FROM users GROUP BY t HAVING n > 1;"
    )
    first, second = (render(s.query) for s in plan.one_shots if s.query is not None)
    assert first.endswith("`a` * 2 AS `b` FROM `users` AS `users` ORDER BY `b`")
    assert second.endswith("GROUP BY `users`.`tier` HAVING COUNT(*) > 1")


def test_a_with_query_is_bound_and_renamed() -> None:
    step = last_step(
        good(
            "WITH x(k, v) AS (SELECT user_id, age FROM users) "
            "SELECT t.symbol, x.v FROM trades t JOIN x ON x.k = t.user_id;"
        )
    )
    assert [str(c) for c in step.schema] == ["symbol STRING", "v INT"]
    assert [a.table for a in step.reads] == ["users"]


# What a URI is, by place


def test_a_uri_in_from_of_insert_select_and_create_stream_is_a_stream() -> None:
    plan = good(
        "INSERT INTO notes SELECT a, 1 FROM 'file://./a.jsonl'; SELECT * FROM 'file://./b.jsonl';"
        "CREATE STREAM c AS SELECT * FROM 'file://./c.jsonl';"
    )
    modes = {s.name: s.mode for s in plan.sources}
    assert {modes["a.jsonl"], modes["b.jsonl"], modes["c.jsonl"]} == {Mode.APPEND}


def test_a_uri_in_a_join_or_subquery_is_a_hidden_table() -> None:
    plan = good(
        "SELECT t.symbol, v.a FROM trades t JOIN 'file://./v.csv' v ON v.k = t.symbol "
        "WHERE t.symbol IN (SELECT k FROM 'file://./v.csv');",
        {"v.csv": "k STRING, a INT"},
    )
    hidden = [t for t in plan.tables if t.kind is TableKind.HIDDEN]
    assert len(hidden) == 1
    assert hidden[0].spec.hidden
    assert [a.table for a in last_step(plan).reads] == [hidden[0].name]


def test_a_database_is_a_table_everywhere() -> None:
    plan = plan_of(f"{HEAD}INSERT INTO notes SELECT a, 1 FROM postgresql://crm/limits;")
    assert not plan.errors
    assert plan.one_shots[-1].query is not None
    assert next(s for s in plan.sources if s.type == "postgresql").mode is not Mode.APPEND


def test_a_uri_in_a_ctas_is_a_table_but_kafka_and_generate_under_an_aggregate_are_streams() -> None:
    plan = good(
        "CREATE TABLE a AS SELECT seq FROM generate://?rows=5;"
        "CREATE TABLE b AS SELECT seq % 2 AS k, COUNT(*) AS n FROM generate://?rows=5 GROUP BY seq % 2;"
        "CREATE TABLE c AS SELECT k, COUNT(*) AS n FROM 'file://./c.csv' GROUP BY k;",
        {"c.csv": "k STRING"},
    )
    assert [table(plan, n).kind for n in "abc"] == [TableKind.LOADED, TableKind.AGGREGATE, TableKind.VIEW]


def test_a_ctas_of_columns_and_rows_is_loaded_over_the_batch() -> None:
    plan = good(
        "CREATE TABLE s PRIMARY KEY (k) AS SELECT * FROM 'file://./s.csv' WHERE a > 1 WITH ('watch' = 'true');",
        {"s.csv": "k STRING, a INT"},
    )
    loaded = table(plan, "s")
    assert loaded.query is not None
    assert render(loaded.query) == "SELECT `_1`.`k` AS `k`, `_1`.`a` AS `a` FROM `__batch__` AS `_1` WHERE `_1`.`a` > 1"
    assert (loaded.kind, loaded.watch, loaded.spec.schema.key) == (TableKind.LOADED, True, ("k",))
    assert [str(c) for c in loaded.spec.schema] == ["k STRING NOT NULL", "a INT"]


def test_a_ctas_with_a_join_over_a_file_is_a_view_over_a_hidden_table() -> None:
    plan = good(
        "CREATE TABLE v AS SELECT f.k, u.name FROM 'file://./f.csv' f JOIN users u ON u.user_id = f.k;",
        {"f.csv": "k STRING"},
    )
    view = table(plan, "v")
    assert view.kind is TableKind.VIEW
    assert [table(plan, a.table).kind for a in view.reads] == [TableKind.HIDDEN, TableKind.DECLARED]
    assert view.refresh.startswith("for the affected keys (k, name) when ")


def test_unknown_columns_keep_the_star_and_say_so() -> None:
    plan = good("CREATE TABLE s AS SELECT * FROM 'file://./s.csv';")
    assert table(plan, "s").spec.schema.names == ()
    assert [p.code for p in plan.problems] == ["MP221"]


# Sources


def sources(text: str) -> list[str]:
    return [s.id for s in plan_of(text).sources]


def test_the_same_uri_with_the_same_options_is_one_source() -> None:
    text = (
        "SELECT a FROM 'file://./x.jsonl'; SELECT b FROM 'file://./x.jsonl'; CREATE STREAM s FROM 'file://./x.jsonl';"
    )
    assert len(sources(text)) == 1
    assert len(plan_of(text).flows) == 1


def test_other_options_make_another_source() -> None:
    text = "SELECT a FROM 'file://./x.jsonl'; SELECT a FROM 'file://./x.jsonl' WITH ('format' = 'csv');"
    assert len(sources(text)) == 2


def test_a_statement_may_read_a_named_stream_with_other_options() -> None:
    text = (
        "CREATE STREAM s (a INT) FROM 'file://./x.jsonl';"
        "SELECT a FROM s; SELECT a FROM s WITH ('max.rows.per.batch' = '7');"
    )
    plan = plan_of(text)
    assert plan.errors == ()
    assert [f.name for f in plan.flows] == ["s", "s"]
    assert sorted(s.spec.values["max.rows.per.batch"] for s in plan.sources) == [7, 1_000_000]


def test_the_id_of_a_source_does_not_depend_on_the_rest_of_the_file() -> None:
    stream = "CREATE STREAM s (a INT) FROM 'file://./x.jsonl';"
    first = sources(stream)
    assert sources(f"CREATE STREAM other FROM 'file://./y.jsonl'; {stream}")[1] == first[0]
    assert sources(stream.replace("a INT", "a INT, b STRING")) == first


def test_a_password_is_no_part_of_an_id() -> None:
    one, other = ("SELECT a FROM postgresql://u:" + p + "@h/db/t;" for p in ("one", "other"))
    assert sources(one) == sources(other)


def test_two_equal_declarations_are_read_once() -> None:
    text = "CREATE STREAM {} (a INT) FROM 'file://./x.jsonl'; SELECT a FROM {};"
    assert len(plan_of(text.format("a1", "a1") + text.format("a2", "a2")).flows) == 1


# Flows and one-shots


def test_the_statements_of_one_stream_are_one_flow_in_the_order_of_the_file() -> None:
    plan = good("SELECT symbol FROM trades; INSERT INTO notes SELECT symbol, 1 FROM trades;")
    flow = next(f for f in plan.flows if f.name == "trades")
    assert [(s.kind, s.target) for s in flow.steps] == [
        (StepKind.AGGREGATE, "totals"),
        (StepKind.SINK, "terminal"),
        (StepKind.INSERT, "notes"),
    ]


def test_a_flow_that_only_reads_a_table_comes_after_those_that_feed_it() -> None:
    plan = plan_of(
        "CREATE STREAM a (k STRING) FROM 'file://./a.jsonl'; CREATE STREAM b (k STRING) FROM 'file://./b.jsonl';"
        "CREATE TABLE t (k STRING PRIMARY KEY); CREATE TABLE v AS SELECT k FROM t;"
        "SELECT a.k FROM a JOIN v ON v.k = a.k; INSERT INTO t SELECT k FROM b;"
    )
    assert [f.name for f in plan.flows] == ["b", "a"]


def test_flows_that_feed_each_other_keep_the_order_of_the_file() -> None:
    plan = plan_of(
        "CREATE STREAM a (k STRING) FROM 'file://./a.jsonl'; CREATE STREAM b (k STRING) FROM 'file://./b.jsonl';"
        "CREATE TABLE t (k STRING PRIMARY KEY); CREATE TABLE u (k STRING PRIMARY KEY);"
        "INSERT INTO t SELECT a.k FROM a JOIN u ON u.k = a.k; INSERT INTO u SELECT b.k FROM b JOIN t ON t.k = b.k;"
    )
    assert [f.name for f in plan.flows] == ["a", "b"]
    assert [p.code for p in plan.problems] == ["MP222"]


def test_equal_one_shots_are_numbered_by_occurrence() -> None:
    plan = good(
        "INSERT INTO notes VALUES ('a', 1); INSERT INTO notes  VALUES ('a', 1); INSERT INTO notes VALUES ('b', 1);"
    )
    first, second, third = (s.id for s in plan.one_shots)
    assert first.split("-")[0] == second.split("-")[0] != third.split("-")[0]
    assert [i.split("-")[1] for i in (first, second, third)] == ["1", "2", "1"]


def test_queries_over_tables_run_late_and_a_bare_one_at_each_start() -> None:
    plan = good(
        "SELECT name FROM users; INSERT INTO 'file://./o' SELECT name FROM users;"
        "INSERT INTO notes SELECT name, age FROM users;"
    )
    assert [(s.late, s.repeat, s.sink is not None) for s in plan.one_shots] == [
        (True, True, True),
        (True, False, True),
        (False, False, False),
    ]


def test_transactions_are_numbered_and_undone_ones_left_out() -> None:
    plan = good(
        "BEGIN; DELETE FROM notes; DELETE FROM users; COMMIT; BEGIN; DELETE FROM notes; ROLLBACK; DELETE FROM notes;"
    )
    assert [s.transaction for s in plan.one_shots] == [1, 1, None]


def test_a_drop_before_the_create_of_its_name_runs_early() -> None:
    plan = good("DROP TABLE IF EXISTS fresh; CREATE TABLE fresh (a INT); DROP TABLE IF EXISTS old;")
    assert [s.early for s in plan.one_shots] == [True, False]


def test_an_update_carries_its_bound_parts() -> None:
    shot = good("UPDATE users u SET age = age + 1, tier = DEFAULT WHERE u.tier = 'GOLD';").one_shots[-1]
    assert [name for name, _ in shot.assignments] == ["age", "tier"]
    assert shot.condition is not None
    assert render(shot.condition) == "`u`.`tier` = 'GOLD'"


def test_insert_into_a_declared_stream_writes_to_its_source_by_position() -> None:
    plan = good("INSERT INTO quotes SELECT symbol, price, ts FROM trades;")
    step = last_step(plan)
    assert step.kind is StepKind.SINK
    assert plan.sink(step.target).spec.shown == "file://./quotes.jsonl"
    assert step.schema.names == ("symbol", "bid", "ts")


def test_values_into_a_sink_are_a_query() -> None:
    shot = good("INSERT INTO 'file://./o' (a, b) VALUES (1, 'x');").one_shots[-1]
    assert shot.query is not None
    assert (
        render(shot.query)
        == "SELECT `_values`.`a` AS `a`, `_values`.`b` AS `b` FROM VALUES (1, 'x') AS `_values`(`a`, `b`)"
    )


def test_show_describe_and_explain_answer_at_each_start() -> None:
    plan = good("SHOW TABLES; DESCRIBE users; EXPLAIN SELECT name FROM users;")
    assert [(s.late, s.repeat, s.sink) for s in plan.one_shots] == [(True, True, "terminal")] * 3


def test_options_go_from_app_to_stream_to_statement() -> None:
    plan = plan_of(
        "SET late.rows = 'drop'; CREATE STREAM s (a INT) FROM 'file://./x.jsonl' WITH ('on.bad.record' = 'skip');"
        "INSERT INTO 'file://./o' SELECT a FROM s; SELECT a FROM s WITH ('late.rows' = 'dead-letter');"
    )
    first, second = plan.flows[0].steps
    assert (first.options["late.rows"], first.options["on.bad.record"]) == ("drop", "skip")
    assert (second.options["late.rows"], second.options["on.bad.record"]) == ("dead-letter", "skip")


def test_hints_are_read_and_taken_out() -> None:
    step = last_step(
        good("SELECT /*+ SNAPSHOT(u), BROADCAST(u) */ t.symbol FROM trades t JOIN users u ON u.user_id = t.user_id;")
    )
    assert "/*+ BROADCAST(`u`) */" in render(step.query).replace("(u)", "(`u`)")
    assert [(a.how, a.reason) for a in step.reads] == [(AccessKind.SNAPSHOT, "by the hint SNAPSHOT")]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT tier, COUNT(*) AS n FROM users GROUP BY tier", ("tier",)),
        ("SELECT * FROM users", ("user_id",)),
        ("SELECT name, user_id AS id FROM users WHERE age > 3", ("id",)),
        ("SELECT name FROM users", ()),
        ("SELECT u.user_id FROM users u JOIN notes n ON n.text = u.name", ()),
        ("SELECT DISTINCT user_id FROM users", ()),
    ],
)
def test_a_view_is_keyed_by_its_groups_or_keeps_the_key_of_its_table(text: str, key: tuple[str, ...]) -> None:
    assert table(good(f"CREATE TABLE v AS {text};"), "v").spec.schema.key == key


def test_calls_without_alias_have_the_names_that_spark_gives_them() -> None:
    calls = "collect_list(quantity), collect_set(price)"
    plan = good(f"SELECT symbol, {calls} FROM trades GROUP BY symbol;")
    names = ("symbol", "collect_list(quantity)", "collect_set(price)")
    assert plan.flows[-1].steps[-1].schema.names == names


def test_a_stream_with_other_options_keeps_its_watermark() -> None:
    plan = good(
        "CREATE TABLE w AS SELECT window_start, COUNT(*) AS n FROM quotes GROUP BY TUMBLING(ts, INTERVAL 1 MINUTE) "
        "WITH ('max.rows.per.batch' = '7');"
    )
    flow = next(flow for flow in plan.flows if flow.steps[0].target == "w")
    assert flow.watermark is not None
    assert str(flow.watermark.column) == "ts"


def test_the_pace_of_a_source_is_no_part_of_its_name_unless_two_paces_stand_side_by_side(tmp_path: Path) -> None:
    quick, slow = ("'watch.interval' = '10ms'", "'watch.interval' = '10s'")
    text = "CREATE TABLE t{0} (a INT); INSERT INTO t{0} SELECT a FROM 'file:in.jsonl' {1};"
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n')

    def ids(*options: str) -> list[str]:
        script = " ".join(text.format(n, f"WITH ({o})" if o else "") for n, o in enumerate(options))
        return [flow.id for flow in plan_text(script, base=tmp_path).flows]

    (plain,) = ids("")
    assert ids(quick) == [plain]
    assert ids("", "") == [plain]
    assert ids("'format' = 'json'") != [plain]
    first, second = ids(quick, slow)
    assert first == plain != second


def test_options_of_a_relation_do_not_stay_in_the_query() -> None:
    plan = plan_of("""
        CREATE STREAM tx AS SELECT seq FROM 'generate://?rows=9' WITH ('max.rows.per.batch' = '3');
        INSERT INTO 'file://./out' SELECT seq FROM tx WHERE seq > 1;
        CREATE TABLE t AS SELECT seq, ts FROM 'generate://?rows=9' WITH ('max.rows.per.batch' = '4');
    """)
    assert plan.errors == ()
    queries = [step.query for flow in plan.flows for step in flow.steps]
    queries += [table.query for table in plan.tables if table.query is not None]
    assert len(queries) == 2
    assert not any(table.args.get("mp_options") for query in queries for table in query.find_all(exp.Table))
