"""The table contract, part 2: changes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import Store, Table
from millpond.schema import Column, Schema
from millpond.testing.table_harness import ANN, BO, CY, EVENTS, USERS, Harness, ids, refuses, rows


class WritingContract(Harness):
    """The changing methods of a table, and the changes that are rejected."""

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
        numbers.update("true", {"n": numbers.condition("n + 1").expression})
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
        assert users.delete("true") == 1
        assert len(users) == 0
        users.insert([ANN])
        assert users.get("u1") == ANN

    def test_delete_without_condition_and_keys_is_rejected(self, users: Table) -> None:
        for mistake in ({}, {"keys": None}, {"condition": None}):
            with refuses("MP409"):
                users.delete(**mistake)  # type: ignore[arg-type]
        assert len(users) == 3

    def test_update_without_a_condition_is_rejected(self, users: Table) -> None:
        before = rows(users)
        with refuses("MP409"):
            users.update(None, {"age": 1})
        with refuses("MP409"):
            users.update_many([("user_id = 'u1'", {"age": 1}, []), (None, {"age": 2}, [])])
        assert rows(users) == before
        assert users.update("true", {"age": 1}) == 3

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
        users.delete("true")
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


class DurableContract(Harness):
    """What survives a restart."""

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
            # A table on a server can be used when its options are given, which are not stored.
            events = store.create(self.spec("events", EVENTS))
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
