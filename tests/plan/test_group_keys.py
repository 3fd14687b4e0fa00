"""GROUP BY over a stream: the groups are the table's key."""

import pytest
from tests.plan.planning import HEAD, plan_of


def test_the_table_is_keyed_by_its_groups_which_may_be_null() -> None:
    plan = plan_of(
        f"{HEAD}CREATE TABLE z AS SELECT COUNT(*) AS n, symbol AS s, user_id FROM trades GROUP BY 2, user_id;"
    )
    table = plan.table("z")
    assert table is not None
    assert table.spec.schema.key == ("s", "user_id")
    assert table.spec.null_keys


@pytest.mark.parametrize("group", ["symbol", "1", "s", "upper(symbol)"])
def test_groups_are_named_by_column_position_alias_and_expression(group: str) -> None:
    query = f"SELECT upper(symbol) AS s, COUNT(*) AS n FROM trades GROUP BY {group}"
    plan = plan_of(f"{HEAD}CREATE TABLE z AS {query};")
    # The bare column is not what is selected, so the table would have no key.
    assert [p.code for p in plan.errors] == (["MP208"] if group == "symbol" else [])


def test_an_aggregate_without_group_by_has_no_key() -> None:
    table = plan_of(f"{HEAD}CREATE TABLE z AS SELECT COUNT(*) AS n FROM trades;").table("z")
    assert table is not None
    assert table.spec.schema.key == ()
