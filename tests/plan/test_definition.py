"""What a statement is known by from start to start: its meaning, not the options that say how it runs."""

import pytest
from tests.plan.planning import HEAD, plan_of

from millpond.app.edits import statements_of
from millpond.engine.dead_letters import statement_id
from millpond.plan.model import Plan
from millpond.plan.option_owners import GROUP_OPTIONS, JOIN_OPTIONS, TABLE_OPTIONS
from millpond.registry import find
from millpond.settings import FLOW_OPTIONS

# Of a plan whose option does nothing where it stands, which is an error whatever was there before.
REFUSED = "refused"
STATEMENTS = {
    "aggregate": "CREATE TABLE a AS SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol{at_end}",
    "window": "CREATE TABLE w AS SELECT symbol, window_start, COUNT(*) AS n FROM quotes "
    "GROUP BY symbol, TUMBLING(ts, INTERVAL 1 MINUTE){at_end}",
    "distinct": "CREATE TABLE d AS SELECT DISTINCT symbol FROM trades{at_end}",
    "groups into a sink": "INSERT INTO 'file://./o' SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol{at_end}",
    "insert": "INSERT INTO notes SELECT symbol, quantity FROM trades{at_end}",
    "update": "UPDATE users SET name = t.symbol FROM trades t WHERE users.user_id = t.user_id{at_end}",
    "delete": "DELETE FROM users USING trades t WHERE users.user_id = t.user_id{at_end}",
    "join": "INSERT INTO notes SELECT t.symbol, u.age FROM trades t JOIN users u ON u.user_id = t.user_id{at_join}"
    "{at_end}",
    "two streams": "INSERT INTO 'file://./o' SELECT t.symbol, q.bid FROM trades t JOIN quotes q ON q.symbol = t.symbol "
    "AND q.ts BETWEEN t.ts - INTERVAL 5 SECONDS AND t.ts{at_end}",
    "changes": "INSERT INTO 'file://./o' SELECT * FROM CHANGES(users){at_end}",
    "view": "CREATE TABLE v AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier{at_end}",
}
IN_FLOWS = tuple(kind for kind in STATEMENTS if kind not in ("changes", "view"))
TABLES = ("aggregate", "window", "distinct", "view")
VALUES = {"cache.max_size": "7", "cache.ttl": "1h", "retention": "1h", "state.ttl": "1h", "wait.max.rows": "7"}
VALUES |= {"idle.timeout": "3s", "table.wait.timeout": "3s", "wait.timeout": "3s", "spill": "true", "durable": "false"}
VALUES |= {"max_memory": "64MB", "compression": "lz4", "backfill": "true", "history": "1h", "history.time": "x"}


def values_of(option: object) -> list[str]:
    name, kind = option.name, option.kind  # type: ignore[attr-defined]
    return [VALUES[name]] if name in VALUES else list(kind.wanted.split(" | "))


def known_by(plan: Plan) -> object:
    """Everything by which a state directory finds again what it has of a plan."""
    return (
        [(t.name, t.definition) for t in plan.tables if t.history is None],
        [(f.id, statements_of(f)) for f in plan.flows],
        [(s.waiting, s.aggregate and s.aggregate.companions, statement_id(f, s)) for f in plan.flows for s in f.steps],
        [(c.id, c.table) for c in plan.changes],
    )


def planned(kind: str, at_end: str = "", at_join: str = "") -> object:
    def group(text: str) -> str:
        return f" WITH ({text})" if text else ""

    plan = plan_of(HEAD + STATEMENTS[kind].format(at_end=group(at_end), at_join=group(at_join)) + ";")
    if plan.errors and {error.code for error in plan.errors} <= {"MP202", "MP211", "MP302", "MP303", "MP815"}:
        return REFUSED
    assert not plan.errors, [str(e) for e in plan.errors]
    return known_by(plan)


@pytest.mark.parametrize("kind", IN_FLOWS)
def test_options_of_a_statement_may_change(kind: str) -> None:
    before = planned(kind)
    options = (*FLOW_OPTIONS, *GROUP_OPTIONS)
    given = [f"'{option.name}' = '{value}'" for option in options for value in values_of(option)]
    found = {text: planned(kind, text) for text in given}
    taken = {text: known for text, known in found.items() if known != REFUSED}
    assert "'on.error' = 'dead-letter'" in taken
    assert {text for text, known in taken.items() if known != before} == set()


@pytest.mark.parametrize("kind", TABLES)
def test_options_of_a_table_may_change_but_not_where_its_rows_live(kind: str) -> None:
    before, other = planned(kind), planned(kind, "'backend' = 'cache'")
    assert before != other
    assert planned(kind, "'extension' = 'memory'") == before
    for option in (*TABLE_OPTIONS, *find("backend", "memory").options):
        beside = {"spill": ", 'max_memory' = '64MB'", "history.time": ", 'history' = '1h'"}.get(option.name, "")
        if not option.defines:
            assert planned(kind, f"'{option.name}' = '{values_of(option)[0]}'{beside}") in (before, REFUSED), option


def test_options_of_a_join_may_change() -> None:
    waits = planned("join", at_join="'on.missing' = 'wait'")
    for option in JOIN_OPTIONS:
        if option.name in VALUES:
            changed = planned("join", at_join=f"'on.missing' = 'wait', '{option.name}' = '{VALUES[option.name]}'")
            assert changed == waits, option.name
    found = [planned("join", at_join=text) for text in ("", "'on.missing' = 'nulls'", "'on.missing' = 'skip'")]
    assert found[0] == found[1] == found[2]


def test_options_of_a_sink_may_change_for_changes() -> None:
    sink = STATEMENTS["changes"].replace("'file://./o'", "'file://./o' WITH ('format' = 'csv')").format(at_end="")
    assert known_by(plan_of(HEAD + sink + ";")) == planned("changes")
