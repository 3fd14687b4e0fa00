"""The contract suite of tables: subclass TableContract, name a backend, and pytest runs every promise against it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import Store, Table, TableSpec, WriteTable
from millpond.errors import ConflictError, MillpondError
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema
from millpond.tables.store import open_store

USERS = Schema.of(
    [
        Column("user_id", pa.string(), nullable=False),
        Column("name", pa.string()),
        Column("tier", pa.string(), nullable=False, default="'BASIC'"),
        Column("age", pa.int32()),
        Column("balance", pa.decimal128(12, 2)),
    ],
    key=["user_id"],
)
EVENTS = Schema.of([Column("kind", pa.string()), Column("n", pa.int64())])
POSITIONS = Schema.of(
    [Column("user_id", pa.string(), False), Column("symbol", pa.string(), False), Column("size", pa.int64())],
    key=["user_id", "symbol"],
)
ANN = {"user_id": "u1", "name": "Ann", "tier": "GOLD", "age": 41, "balance": Decimal("10.50")}
BO = {"user_id": "u2", "name": "Bo", "tier": "BASIC", "age": 17, "balance": Decimal("-3.25")}
CY = {"user_id": "u3", "name": None, "tier": "GOLD", "age": None, "balance": None}


def refuses(code: str) -> Any:
    """A context in which an error of this code must be raised."""
    return pytest.raises(MillpondError, match=code)


class Harness:
    """Opens stores for a suite; a backend of a third party overrides what differs."""

    backend = "memory"
    options: Mapping[str, Any] = {}
    keeps_rows = True

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = self.open(tmp_path / "tables")
        yield store
        store.close()

    def open(self, folder: Path | None) -> Store:
        return open_store(folder)

    def spec(self, name: str, schema: Schema, **more: Any) -> TableSpec:
        return TableSpec(name, schema, self.backend, self.options, **more)

    @pytest.fixture
    def users(self, store: Store) -> Table:
        table = store.create(self.spec("users", USERS))
        table.insert([ANN, BO, CY])
        return table


class ReadingContract(Harness):
    """What can be asked of a table."""

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

    def test_a_key_of_another_type_is_refused(self, store: Store) -> None:
        numbers = store.create(self.spec("numbers", Schema.of([Column("n", pa.int32(), False)], ["n"])))
        numbers.insert([{"n": 1}])
        assert numbers.get(1) == {"n": 1}
        for wrong in ("1", True, b"1"):
            with refuses("MP404"):
                numbers.get(wrong)

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
        users.delete()
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


class WritingContract(Harness):
    """What changes a table, and what it refuses."""

    def test_absent_columns_take_their_default(self, store: Store) -> None:
        users = store.create(self.spec("users", USERS))
        assert users.insert([{"user_id": "a"}, {"user_id": "b", "tier": "GOLD"}, {"USER_ID": "c"}]) == 3
        assert [users.get(k)["tier"] for k in "abc"] == ["BASIC", "GOLD", "BASIC"]  # type: ignore[index]

    def test_an_insert_that_breaks_a_rule_changes_nothing(self, users: Table) -> None:
        before, version = rows(users), users.version
        new = {**ANN, "user_id": "new"}
        for code, wrong in (
            ("MP401", [new, {**ANN, "user_id": "x", "tier": None}]),
            ("MP402", [new, ANN]),
            ("MP402", [new, new]),
            ("MP402", [new, {"user_id": "new"}]),
            ("MP403", [new, {**ANN, "user_id": None}]),
            ("MP404", [new, {**ANN, "user_id": "x", "age": "many"}]),
            ("MP404", [new, {**ANN, "user_id": "x", "age": 2**31}]),
            ("MP202", [{**new, "agee": 1}]),
        ):
            with refuses(code):
                users.insert(wrong)
            assert rows(users) == before
            assert users.version == version

    def test_an_upsert_replaces_and_the_last_of_equal_keys_wins(self, users: Table) -> None:
        assert users.upsert([{**ANN, "age": 1}, {**BO, "user_id": "u9"}, {**ANN, "age": 2}]) == 2
        assert users.get("u1") == {**ANN, "age": 2}
        assert len(users) == 4

    def test_a_partial_upsert_keeps_the_other_columns(self, users: Table) -> None:
        users.upsert([{"user_id": "u1", "age": 50}, {"user_id": "u8", "age": 60}])
        assert users.get("u1") == {**ANN, "age": 50}
        assert users.get("u8") == {"user_id": "u8", "name": None, "tier": "BASIC", "age": 60, "balance": None}
        users.upsert(pa.table({"tier": ["X", "Y"], "user_id": ["u1", "u7"]}))
        assert users.get("u1") == {**ANN, "age": 50, "tier": "X"}

    def test_an_upsert_needs_keys(self, store: Store, users: Table) -> None:
        with refuses("MP403"):
            users.upsert([{"name": "no key"}])
        with refuses("MP409"):
            store.create(self.spec("events", EVENTS)).upsert([{"kind": "a", "n": 1}])

    def test_an_update_sets_values_and_expressions(self, users: Table) -> None:
        raise_ages = users.condition("age + 1").expression
        assert users.update("age IS NOT NULL", {"age": raise_ages}) == 2
        assert sorted(users.values("age", "age > 0")) == [18, 42]
        assert users.update("user_id = ?", {"tier": "X", "balance": 1}, ["u2"]) == 1
        assert users.get("u2") == {**BO, "age": 18, "tier": "X", "balance": Decimal("1.00")}
        assert users.update("user_id = 'nobody'", {"tier": "X"}) == 0

    def test_an_update_that_breaks_a_rule_changes_nothing(self, users: Table) -> None:
        before = rows(users)
        for code, values in (("MP401", {"tier": None}), ("MP404", {"age": "x"}), ("MP202", {"nope": 1})):
            with refuses(code):
                users.update("user_id = 'u1'", values)
        with refuses("MP402"):
            users.update("user_id = 'u1'", {"user_id": "u2"})
        with refuses("MP402"):
            users.update("age > 0", {"user_id": "same"})
        with refuses("MP403"):
            users.update("user_id = 'u1'", {"user_id": None})
        assert rows(users) == before

    def test_a_key_can_be_updated_and_swapped(self, store: Store, users: Table) -> None:
        assert users.update("user_id = 'u1'", {"user_id": "moved"}) == 1
        assert users.get("u1") is None
        assert users.get("moved") == {**ANN, "user_id": "moved"}
        numbers = store.create(self.spec("numbers", Schema.of([Column("n", pa.int32(), False)], ["n"])))
        numbers.insert([{"n": n} for n in range(10)])
        numbers.update(None, {"n": numbers.condition("n + 1").expression})
        assert sorted(numbers.values("n")) == list(range(1, 11))

    def test_update_many_is_one_change(self, users: Table) -> None:
        version = users.version
        changes = [("user_id = ?", {"age": 1}, ["u1"]), ("age = 1", {"age": 2}, []), ("age = 99", {"age": 3}, [])]
        assert users.update_many(changes) == 2
        assert users.get("u1") == {**ANN, "age": 2}
        assert users.version == version + 1
        with refuses("MP404"):
            users.update_many([("user_id = 'u1'", {"age": 7}, []), ("user_id = 'u1'", {"age": "x"}, [])])
        assert users.get("u1") == {**ANN, "age": 2}

    def test_rows_are_deleted_by_condition_and_by_key(self, users: Table) -> None:
        assert users.delete("age < 18") == 1
        assert users.delete(keys=["u1", "u1", "nobody"]) == 1
        assert rows(users) == [CY]
        assert users.delete() == 1
        assert len(users) == 0
        users.insert([ANN])
        assert users.get("u1") == ANN

    def test_replace_changes_only_what_differs(self, store: Store, users: Table) -> None:
        version = users.version
        wanted = pa.Table.from_pylist([ANN, {**BO, "age": 18}, {**CY, "user_id": "u4"}], USERS.arrow())
        assert users.replace(wanted) == 2
        assert rows(users) == sorted(wanted.to_pylist(), key=str)
        (change,) = users.changes_since(version) or ()
        assert ids(change.removed) == {"u2", "u3"}
        assert ids(change.added) == {"u2", "u4"}
        assert users.replace(wanted) == 0
        assert users.version == version + 1
        events = store.create(self.spec("events", EVENTS))
        events.insert([{"kind": "a", "n": 1}, {"kind": "a", "n": 1}, {"kind": "b", "n": 2}])
        assert events.replace(pa.table({"kind": ["a", "c"], "n": pa.array([1, 3])})) == 2
        assert rows(events) == [{"kind": "a", "n": 1}, {"kind": "c", "n": 3}]

    def test_a_change_of_nothing_is_no_commit(self, users: Table) -> None:
        version = users.version
        users.delete("age = 1000")
        users.update("age = 1000", {"age": 1})
        users.insert([])
        users.upsert(users.to_arrow().slice(0, 0))
        assert users.version == version

    def test_null_equals_null_in_a_group_table(self, store: Store) -> None:
        spec = self.spec(
            "groups", Schema.of([Column("g", pa.string()), Column("n", pa.int64())], ["g"]), null_keys=True
        )
        groups = store.create(spec)
        groups.upsert([{"g": None, "n": 1}, {"g": "a", "n": 2}])
        groups.upsert([{"g": None, "n": 3}])
        assert groups.get(None) == {"g": None, "n": 3}
        assert groups.lookup([None, "a"]).num_rows == 2
        assert groups.delete(keys=[None]) == 1
        assert rows(groups) == [{"g": "a", "n": 2}]

    def test_a_copy_goes_its_own_way(self, store: Store, users: Table) -> None:
        backup = users.copy("users_backup")
        users.delete()
        assert len(backup) == 3
        assert store.table("users_backup").get("u1") == ANN

    def test_names_are_found_in_any_case(self, store: Store, users: Table) -> None:
        assert store.table("USERS").get("u1") == ANN
        with pytest.raises(KeyError):
            store.table("nobody")
        assert store.names() == ("users",)

    def test_a_dropped_table_is_gone(self, store: Store, users: Table) -> None:
        store.drop("Users")
        store.drop("Users")
        assert store.names() == ()
        with refuses("MP409"):
            users.get("u1")
        again = store.create(self.spec("users", EVENTS))
        assert len(again) == 0

    def test_a_table_of_another_shape_is_not_opened(self, store: Store, users: Table) -> None:
        assert store.create(self.spec("users", USERS)) is users
        for other in (USERS.with_key(()), EVENTS):
            with refuses("MP409"):
                store.create(self.spec("users", other))


VALUES: tuple[tuple[pa.DataType, list[Any]], ...] = (
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, 0, None]),
    (pa.int16(), [-32768, 32767, None]),
    (pa.int32(), [-(2**31), 2**31 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [0.5, -1.25, float("inf"), None]),
    (pa.float64(), [0.1, 1e300, float("-inf"), None]),
    (pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001"), None]),
    (pa.string(), ["", "a", "ü€𝄞", "x" * 1000, "a\x00b", None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (TIMESTAMP, [dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC), None]),
    (TIMESTAMP_NTZ, [dt.datetime(2026, 1, 2, 3, 4, 5, 678901), None]),
    (pa.list_(pa.int32()), [[], [1, None, 3], None]),
    (pa.map_(pa.string(), pa.int64()), [{}, {"a": 1, "b": None}, None]),
    (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x", None]}, None]),
)


class TypesContract(Harness):
    """Every type is stored and given back without loss."""

    @pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda v: str(v)[:24])
    def test_values_come_back_as_they_were(self, tmp_path: Path, type_: pa.DataType, values: list[Any]) -> None:
        schema = Schema.of([Column("k", pa.int32(), False), Column("v", type_)], ["k"])
        store = self.open(tmp_path / "types")
        table = store.create(self.spec("t", schema))
        table.insert([{"k": k, "v": v} for k, v in enumerate(values)])
        self._check(table, values)
        store.checkpoint()
        table.upsert([{"k": 0, "v": values[0]}])
        store.close()
        if self.keeps_rows:
            again = self.open(tmp_path / "types")
            self._check(again.create(self.spec("t", schema)), values)
            again.close()

    @pytest.mark.parametrize(("type_", "values"), VALUES[:13], ids=lambda v: str(v)[:24])
    def test_simple_types_are_keys(self, store: Store, type_: pa.DataType, values: list[Any]) -> None:
        schema = Schema.of([Column("k", type_, False), Column("n", pa.int32())], ["k"])
        table = store.create(self.spec("t", schema))
        keys = [v for v in values if v is not None]
        table.insert([{"k": k, "n": 0} for k in keys])
        table.upsert([{"k": k, "n": i} for i, k in enumerate(keys)])
        assert [table.get(k) for k in keys] == [{"k": k, "n": i} for i, k in enumerate(keys)]
        assert table.lookup(keys).num_rows == len(keys)
        assert table.delete(keys=keys) == len(keys)

    def test_zero_has_no_sign_and_nan_is_one_value_as_a_key(self, store: Store) -> None:
        table = store.create(
            self.spec("t", Schema.of([Column("k", pa.float64(), False), Column("n", pa.int32())], ["k"]))
        )
        table.upsert([{"k": 0.0, "n": 1}, {"k": float("nan"), "n": 2}])
        table.upsert([{"k": -0.0, "n": 3}, {"k": -float("nan"), "n": 4}])
        assert sorted(table.values("n")) == [3, 4]
        assert table.contains(0.0)
        assert table.contains(float("nan"))

    def test_values_are_assigned_as_spark_assigns(self, store: Store) -> None:
        names = {"i": pa.int32(), "d": pa.decimal128(5, 2), "s": pa.string(), "f": pa.float64(), "t": TIMESTAMP}
        table = store.create(self.spec("t", Schema.of([Column(n, t) for n, t in names.items()])))
        day = dt.date(2026, 1, 2)
        table.insert([{"i": 1.9, "d": 0.125, "s": 5, "f": Decimal("1.5"), "t": day}])
        table.insert(pa.table({"i": [Decimal("-1.9")], "d": ["x"]}).drop_columns(["d"]))
        table.insert(pa.table({"d": pa.array([Decimal("-0.125")]), "t": pa.array([day])}))
        midnight = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
        assert table.to_arrow().to_pylist() == [
            {"i": 1, "d": Decimal("0.13"), "s": "5", "f": 1.5, "t": midnight},
            {"i": -1, "d": None, "s": None, "f": None, "t": None},
            {"i": None, "d": Decimal("-0.13"), "s": None, "f": None, "t": midnight},
        ]
        for wrong in ({"i": "1"}, {"i": True}, {"d": 1000}, {"d": "1"}, {"f": "1"}, {"t": 5}, {"i": float("nan")}):
            with refuses("MP404"):
                table.insert([wrong])
        for array in (pa.table({"i": ["1"]}), pa.table({"d": pa.array([1000])}), pa.table({"i": pa.array([2**40])})):
            with refuses("MP404"):
                table.insert(array)

    def _check(self, table: Table, values: list[Any]) -> None:
        for key, value in enumerate(values):
            row = table.get(key)
            assert row is not None
            assert row["v"] == value


class TransactionContract(Harness):
    """Several tables at once, all or nothing."""

    def test_changes_are_seen_inside_at_once_and_outside_at_commit(self, store: Store, users: Table) -> None:
        events = store.create(self.spec("events", EVENTS))
        tx = store.begin()
        tx.table("users").update("user_id = 'u1'", {"age": 99})
        tx.table("events").insert([{"kind": "birthday", "n": 99}])
        tx.table("users").delete(keys=["u2"])
        assert tx.table("users").get("u1") == {**ANN, "age": 99}
        assert len(tx.table("users")) == 2
        assert users.get("u1") == ANN
        assert len(events) == 0
        tx.commit()
        assert users.get("u1") == {**ANN, "age": 99}
        assert users.get("u2") is None
        assert len(events) == 1

    def test_own_changes_are_read_by_every_question(self, store: Store, users: Table) -> None:
        users.create_index("tier")
        with store.begin() as tx:
            table = tx.table("users")
            table.insert([{**ANN, "user_id": "u4"}, {**BO, "user_id": "u5"}])
            table.update("user_id = 'u4'", {"tier": "NEW"})
            table.delete(keys=["u3", "u5"])
            assert ids(table.find("tier = 'NEW'")) == {"u4"}
            assert ids(table.lookup(["NEW", "GOLD"], by="tier")) == {"u1", "u4"}
            assert ids(table.lookup(["u1", "u3", "u4", "u5"])) == {"u1", "u4"}
            assert ids(table.to_arrow()) == {"u1", "u2", "u4"}
            assert table.count("age > 0") == len(table) == 3
            assert sum(b.num_rows for b in table.scan()) == 3
        assert ids(users.to_arrow()) == {"u1", "u2", "u4"}
        assert users.lookup(["u4"]).column("tier").to_pylist() == ["NEW"]

    def test_it_reads_the_versions_of_its_beginning(self, store: Store, users: Table) -> None:
        tx = store.begin()
        users.delete(keys=["u1"])
        users.insert([{**ANN, "user_id": "later"}])
        assert tx.table("users").get("u1") == ANN
        assert not tx.table("users").contains("later")
        tx.rollback()

    def test_leaving_by_an_exception_forgets_everything(self, store: Store, users: Table) -> None:
        before = rows(users)
        with refuses("MP402"), store.begin() as tx:
            tx.put("mark", 1)
            tx.table("users").delete(keys=["u2"])
            tx.table("users").insert([ANN])
        assert rows(users) == before
        assert store.get("mark") is None

    def test_a_failing_change_inside_leaves_the_ones_before(self, store: Store, users: Table) -> None:
        with store.begin() as tx:
            tx.table("users").insert([{**ANN, "user_id": "u4"}])
            with refuses("MP402"):
                tx.table("users").insert([{**ANN, "user_id": "u5"}, ANN])
        assert ids(users.to_arrow()) == {"u1", "u2", "u3", "u4"}

    def test_a_savepoint_can_be_returned_to(self, store: Store, users: Table) -> None:
        with store.begin() as tx:
            table = tx.table("users")
            table.insert([{**ANN, "user_id": "u4"}])
            first = tx.savepoint()
            table.update(None, {"age": 1})
            second = tx.savepoint()
            table.delete()
            tx.put("mark", 1)
            tx.rollback_to(second)
            assert table.count("age = 1") == 4
            table.delete(keys=["u1"])
            tx.rollback_to(first)
            assert table.get("u1") == ANN
            table.upsert([{**ANN, "user_id": "u4", "age": 7}])
        assert rows(users) == sorted([ANN, BO, CY, {**ANN, "user_id": "u4", "age": 7}], key=str)
        assert store.get("mark") is None

    def test_the_second_to_change_a_row_is_told(self, store: Store, users: Table) -> None:
        changes: tuple[Callable[[WriteTable], int], ...] = (
            lambda t: t.update("user_id = 'u1'", {"age": 1}),
            lambda t: t.delete(keys=["u1"]),
            lambda t: t.upsert([{"user_id": "u1", "age": 2}]),
        )
        for change in changes:
            users.upsert([ANN])
            tx = store.begin()
            change(tx.table("users"))
            users.update("user_id = 'u1'", {"age": 77})
            with pytest.raises(ConflictError, match="MP405"):
                tx.commit()
            assert users.get("u1") == {**ANN, "age": 77}

    def test_the_second_to_add_a_key_is_told(self, store: Store, users: Table) -> None:
        tx = store.begin()
        tx.table("users").insert([{**ANN, "user_id": "new"}])
        tx.table("users").delete(keys=["u2"])
        users.insert([{**BO, "user_id": "new"}])
        with pytest.raises(ConflictError, match="MP405"):
            tx.commit()
        assert users.get("new") == {**BO, "user_id": "new"}
        assert users.contains("u2")

    def test_changes_of_different_rows_do_not_conflict(self, store: Store, users: Table) -> None:
        one, two = store.begin(), store.begin()
        one.table("users").update("user_id = 'u1'", {"age": 1})
        two.table("users").update("user_id = 'u2'", {"age": 2})
        two.table("users").insert([{**ANN, "user_id": "u4"}])
        one.commit()
        two.commit()
        assert [users.get(k)["age"] for k in ("u1", "u2", "u4")] == [1, 2, 41]  # type: ignore[index]

    def test_an_ended_transaction_is_of_no_use(self, store: Store, users: Table) -> None:
        tx = store.begin()
        tx.table("users").delete()
        table = tx.table("users")
        tx.rollback()
        for use in (lambda: tx.table("users"), lambda: table.delete(), tx.commit, lambda: tx.put("a", 1)):
            with refuses("MP410"):
                use()
        assert len(users) == 3

    def test_values_are_put_in_the_same_commit(self, store: Store, users: Table) -> None:
        with store.begin() as tx:
            tx.put("flow/a", {"batch": 7})
            tx.put("flow/b", [1, 2])
            tx.table("users").delete()
        with store.begin() as tx:
            tx.put("flow/b", None)
        assert store.get("flow/a") == {"batch": 7}
        assert store.items("flow/") == {"flow/a": {"batch": 7}}

    def test_who_locks_a_table_sees_no_conflict_and_others_wait(self, store: Store, users: Table) -> None:
        tx = store.begin(locks=["users"])
        other = threading.Thread(target=users.update, args=("user_id = 'u1'", {"age": 2}))
        other.start()
        assert users.get("u1") == ANN
        tx.table("users").update("user_id = 'u1'", {"age": 1})
        tx.commit()
        other.join(30)
        assert not other.is_alive()
        assert users.get("u1") == {**ANN, "age": 2}


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

    def test_an_older_version_is_read_or_refused(self, users: Table) -> None:
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
        users.delete()
        after = users.stats()
        assert (after.rows, after.commits) == (0, 2)
        assert (after.lookups - before.lookups, after.hits - before.hits) == (2, 1)

    def test_many_replacements_keep_the_table_small_and_right(self, store: Store) -> None:
        numbers = store.create(
            self.spec("n", Schema.of([Column("k", pa.int64(), False), Column("v", pa.int64())], ["k"]))
        )
        old = None
        for turn in range(30):
            numbers.upsert(pa.table({"k": pa.array(range(1000)), "v": pa.array([turn] * 1000)}))
            old = numbers.snapshot() if turn == 3 else old
        assert old is not None
        assert set(old.values("v")) == {3}
        assert set(numbers.values("v")) == {29}
        assert len(numbers) == 1000


class DurableContract(Harness):
    """What a restart keeps."""

    def test_everything_is_there_after_reopening(self, tmp_path: Path) -> None:
        folder = tmp_path / "tables"
        store = self.open(folder)
        users = store.create(self.spec("users", USERS, indexes=(("tier",),)))
        events = store.create(self.spec("events", EVENTS))
        gone = store.create(self.spec("gone", EVENTS))
        gone.insert([{"kind": "x", "n": 1}])
        users.insert([ANN, BO, CY])
        events.insert([{"kind": "a", "n": n} for n in range(10)])
        for turn in range(3):
            users.update("user_id = 'u1'", {"age": turn})
            events.delete("n = ?", [turn * 3])
            if turn == 1:
                store.checkpoint()
        store.drop("gone")
        with store.begin() as tx:
            tx.put("ledger", 7)
            tx.table("users").delete(keys=["u2"])
        expected = (rows(users), events.values("n"), users.version)
        store.close()
        for _ in range(2):
            store = self.open(folder)
            assert set(store.names()) == {"users", "events"}
            users = store.create(self.spec("users", USERS, indexes=(("tier",),)))
            events = store.table("events")
            assert (rows(users), events.values("n"), users.version) == expected
            assert store.get("ledger") == 7
            assert ids(users.lookup(["GOLD"], by="tier")) == {"u1", "u3"}
            store.checkpoint()
            store.close()

    def test_a_folder_is_held_by_one_store(self, tmp_path: Path) -> None:
        store = self.open(tmp_path / "tables")
        with refuses("MP801"):
            self.open(tmp_path / "tables")
        store.close()
        self.open(tmp_path / "tables").close()


class TableContract(
    ReadingContract, WritingContract, TypesContract, TransactionContract, VersionContract, DurableContract
):
    """All promises of a table."""


def rows(table: Any) -> list[dict[str, Any]]:
    """All rows, in an order that does not depend on the table."""
    return sorted(table.to_arrow().to_pylist(maps_as_pydicts="lossy"), key=str)


def ids(table: pa.Table) -> set[str]:
    """The users in a result."""
    return set(table.column("user_id").to_pylist())
