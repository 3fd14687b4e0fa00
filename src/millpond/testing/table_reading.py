"""The table contract, part 1: reading."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from millpond.contracts.table import Store, Table
from millpond.errors import MillpondError
from millpond.schema import Column, Schema
from millpond.testing.table_harness import ANN, BO, CY, EVENTS, POSITIONS, USERS, Harness, ids, refuses, rows


class ReadingContract(Harness):
    """The reading methods of a table."""

    def test_a_row_is_found_by_its_key(self, users: Table) -> None:
        assert users.get("u1") == ANN
        assert users.get("nobody") is None
        assert users.contains("u2")
        assert not users.contains("nobody")

    def test_a_returned_row_is_the_callers_own(self, users: Table) -> None:
        row = users.get("u1")
        assert row is not None
        row["name"] = "changed"
        assert users.get("u1") == ANN

    def test_a_key_of_another_type_is_rejected(self, store: Store) -> None:
        numbers = store.create(self.spec("numbers", Schema.of([Column("n", pa.int32(), False)], ["n"])))
        numbers.insert([{"n": 1}])
        assert numbers.get(1) == {"n": 1}
        for wrong in ("1", True, b"1"):
            with refuses("MP404"):
                numbers.get(wrong)

    def test_a_key_that_no_row_can_have_finds_nothing(self, store: Store) -> None:
        """A key is not rounded to one that a row has: only what is equal in SQL is found or deleted."""
        moment = dt.datetime(2024, 1, 1, 5)
        for type_, key, others in (
            (pa.int32(), 1, [1.5, Decimal("1.5"), 2**40, 2**2000, float("nan")]),
            (pa.decimal128(5, 2), Decimal("1.10"), [Decimal("1.101"), 1.1001, 10**9]),
            (pa.date32(), moment.date(), [moment]),
        ):
            table = store.create(self.spec(f"of_{type_.id}", Schema.of([Column("n", type_, False)], ["n"])))
            table.insert([{"n": key}])
            assert [table.get(other) for other in others] == [None] * len(others)
            assert not table.contains(others[0])
            assert table.lookup([key, *others]).to_pylist() == [{"n": key}]
            assert table.lookup(pa.array(others[:1])).num_rows == table.delete(keys=others) == 0

    def test_keys_and_pages_of_a_wrong_type_are_rejected(self, users: Table) -> None:
        for keys in (5, "u1", b"u1"):
            with refuses("MP409"):
                users.lookup(keys)
            with refuses("MP409"):
                users.delete(keys=keys)
        with refuses("MP409"):
            users.find(limit="2")  # type: ignore[arg-type]
        with refuses("MP202"):
            users.create_index(["tier", "age"])  # type: ignore[arg-type]
        assert len(users) == 3

    def test_a_composite_key_is_a_tuple(self, store: Store) -> None:
        positions = store.create(self.spec("positions", POSITIONS))
        positions.insert([{"user_id": "u", "symbol": "A", "size": 1}, {"user_id": "u", "symbol": "B", "size": 2}])
        assert positions.get(("u", "B")) == {"user_id": "u", "symbol": "B", "size": 2}
        assert positions.get(("B", "u")) is None
        assert positions.lookup([("u", "A"), ("x", "A")]).column("size").to_pylist() == [1]
        with refuses("MP409"):
            positions.get("u")

    def test_count_and_exists_leave_null_out(self, users: Table) -> None:
        assert users.count() == len(users) == 3
        assert users.count("age > 0") == 2
        assert users.count("NOT (age > 0)") == 0
        assert users.exists("age > ?", [40])
        assert not users.exists("age > ?", [65])

    def test_find_takes_conditions_columns_and_pages(self, users: Table) -> None:
        assert ids(users.find("tier = 'GOLD'")) == {"u1", "u3"}
        assert ids(users.find("user_id = 'u2' AND age < 18")) == {"u2"}
        assert ids(users.find("user_id IN ('u1', 'u2', 'x') AND age > 40")) == {"u1"}
        assert ids(users.find("name LIKE 'A%' OR age IS NULL")) == {"u1", "u3"}
        found = users.find("balance = 10.5", columns=["name", "AGE"])
        assert found.to_pylist() == [{"name": "Ann", "age": 41}]
        pages = [users.find(limit=2, offset=o).num_rows for o in (0, 2, 4)]
        assert pages == [2, 1, 0]
        assert users.find("age > 0", limit=1, offset=1).num_rows == 1

    def test_a_condition_is_compiled_once_and_used_often(self, users: Table) -> None:
        gold = users.condition("tier = ?")
        assert ids(users.find(gold, ["GOLD"])) == {"u1", "u3"}
        assert ids(users.find(gold, ["BASIC"])) == {"u2"}
        assert users.count(gold, ["NONE"]) == 0

    def test_parameters_must_be_as_many_as_placeholders(self, users: Table) -> None:
        for given in ([], ["a", "b"]):
            with refuses("MP411"):
                users.find("tier = ?", given)

    def test_a_wrong_column_is_named_with_a_suggestion(self, users: Table) -> None:
        with pytest.raises(MillpondError) as raised:
            users.find("tyer = 'GOLD'")
        assert raised.value.code == "MP202"
        assert "tier" in raised.value.hint
        with refuses("MP202"):
            users.find(columns=["nope"])

    def test_a_mistake_is_reported_even_if_the_key_finds_no_row(self, users: Table) -> None:
        for code, wrong in (("MP202", "nope = 1"), ("MP202", "upper(nope) = 'A'"), ("MP220", "SUM(age) > 1")):
            for key in ("u1", "nobody"):
                with refuses(code):
                    users.find(f"user_id = '{key}' AND {wrong}")

    def test_values_and_scalars(self, users: Table) -> None:
        assert sorted(users.values("age", "age IS NOT NULL")) == [17, 41]
        assert users.scalar("SUM(balance)") == Decimal("7.25")
        assert users.scalar("COUNT(*)", "tier = ?", ["GOLD"]) == 2
        assert users.scalar("MAX(age)", "tier = 'NONE'") is None

    def test_lookup_gives_each_row_once_and_null_finds_nothing(self, users: Table) -> None:
        assert ids(users.lookup(["u1", "u1", "x", None])) == {"u1"}
        assert users.lookup(pa.array(["u1", "u1", "u2"])).num_rows == 2
        assert users.lookup(pa.chunked_array([["u1"], ["u3"]])).num_rows == 2
        assert users.lookup(pa.table({"user_id": ["u2"]})).to_pylist() == [BO]
        assert users.lookup([]).schema.names == list(USERS.names)

    @pytest.mark.parametrize("indexed", [False, True])
    def test_lookup_by_other_columns_with_and_without_index(self, users: Table, indexed: bool) -> None:
        if indexed:
            users.create_index("tier")
            users.create_index("tier", "age")
        assert ids(users.lookup(["GOLD", "GOLD", "NONE"], by="tier")) == {"u1", "u3"}
        assert ids(users.lookup([("GOLD", 41), ("GOLD", None)], by=["tier", "age"])) == {"u1"}
        users.update("user_id = 'u1'", {"tier": "BASIC"})
        users.delete(keys=["u3"])
        assert ids(users.lookup(["GOLD"], by="tier")) == set()
        assert ids(users.find("tier = 'BASIC'")) == {"u1", "u2"}

    def test_a_scan_sees_one_version_throughout(self, users: Table) -> None:
        batches = users.scan(batch_rows=1)
        first = next(batches)
        users.delete("true")
        assert first.num_rows + sum(b.num_rows for b in batches) == 3
        assert [b.num_rows for b in users.scan()] in ([], [0])
        users.insert([ANN, BO])
        assert sum(b.num_rows for b in users.scan("age > 18")) == 1

    def test_results_have_the_declared_types(self, users: Table) -> None:
        wanted = [(c.name, c.type) for c in USERS]
        for table in (users.to_arrow(), users.find("age > 0"), users.lookup(["u1"]), users.lookup([])):
            assert [(f.name, f.type) for f in table.schema] == wanted
        assert users.to_arrow(["age"]).schema.names == ["age"]

    def test_without_a_key_there_is_nothing_to_get(self, store: Store) -> None:
        events = store.create(self.spec("events", EVENTS))
        for ask in (lambda: events.get("x"), lambda: events.contains("x"), lambda: events.lookup(["x"])):
            with refuses("MP409"):
                ask()

    def test_unkeyed_rows_keep_the_order_of_arrival(self, store: Store) -> None:
        events = store.create(self.spec("events", EVENTS))
        for start in range(0, 50, 10):
            events.insert([{"kind": "k", "n": n} for n in range(start, start + 10)])
        events.delete("n % 7 = 0")
        assert events.values("n") == [n for n in range(50) if n % 7]


class VersionContract(Harness):
    """Versions, snapshots and changes."""

    def test_a_snapshot_stays_as_it_was(self, users: Table) -> None:
        before, version = users.snapshot(), users.version
        users.update("user_id = 'u1'", {"age": 1})
        users.delete(keys=["u2"])
        users.insert([{**ANN, "user_id": "u4"}])
        assert before.version == version
        assert users.version == version + 3
        assert rows(before) == [ANN, BO, CY]
        assert before.get("u1") == ANN
        assert before.get("u4") is None
        assert ids(before.lookup(["u1", "u2", "u4"])) == {"u1", "u2"}
        assert before.count("age > 0") == 2

    def test_an_older_version_is_read_or_rejected(self, users: Table) -> None:
        version = users.version
        users.update("user_id = 'u1'", {"age": 1})
        assert users.snapshot(version).get("u1") == ANN
        assert users.snapshot(users.version).get("u1") == {**ANN, "age": 1}
        with refuses("MP409"):
            users.snapshot(users.version + 1)

    def test_changes_since_a_version_lead_to_the_newest(self, users: Table) -> None:
        version = users.version
        held = {r["user_id"]: r for r in users.to_arrow().to_pylist()}
        users.update("user_id = 'u1'", {"age": 1})
        users.upsert([{"user_id": "u2", "age": 3}, {"user_id": "u4"}])
        users.delete(keys=["u3"])
        changes = users.changes_since(version)
        assert changes is not None
        assert [c.version for c in changes] == [version + 1, version + 2, version + 3]
        for change in changes:
            for row in change.removed.to_pylist():
                assert held.pop(row["user_id"]) == row
            held.update({row["user_id"]: row for row in change.added.to_pylist()})
        assert sorted(held.values(), key=str) == rows(users)
        assert users.changes_since(users.version) == ()
        assert users.changes_since(-5) is None

    def test_figures_follow_what_happens(self, users: Table) -> None:
        before = users.stats()
        assert (before.rows, before.version, before.commits) == (3, users.version, 1)
        assert before.updated_at is not None
        users.lookup(["u1", "x"])
        users.delete("true")
        after = users.stats()
        assert (after.rows, after.commits) == (0, 2)
        assert (after.lookups - before.lookups, after.hits - before.hits) == (2, 1)

    def test_many_replacements_keep_the_table_small_and_right(self, store: Store) -> None:
        numbers = store.create(
            self.spec("n", Schema.of([Column("k", pa.int64(), False), Column("v", pa.int64())], ["k"]))
        )
        old = None
        for turn in range(30):
            numbers.upsert(pa.table({"k": pa.array(range(self.many)), "v": pa.array([turn] * self.many)}))
            old = numbers.snapshot() if turn == 3 else old
        assert old is not None
        assert set(old.values("v")) == {3}
        assert set(numbers.values("v")) == {29}
        assert len(numbers) == self.many
