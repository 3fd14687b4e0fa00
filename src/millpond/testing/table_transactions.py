"""The table contract, part 4: transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from millpond.contracts.table import Store, Table, WriteTable
from millpond.errors import ConflictError
from millpond.testing.table_harness import ANN, BO, CY, EVENTS, Harness, ids, refuses, rows


class TransactionContract(Harness):
    """Transactions over several tables."""

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

    @pytest.mark.parametrize("indexed", [True, False])
    def test_own_changes_are_read_by_every_question(self, store: Store, users: Table, indexed: bool) -> None:
        if indexed:
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
            table.update("true", {"age": 1})
            second = tx.savepoint()
            table.delete("true")
            tx.put("mark", 1)
            tx.rollback_to(second)
            assert table.count("age = 1") == 4
            table.delete(keys=["u1"])
            tx.rollback_to(first)
            assert table.get("u1") == ANN
            table.upsert([{**ANN, "user_id": "u4", "age": 7}])
        assert rows(users) == sorted([ANN, BO, CY, {**ANN, "user_id": "u4", "age": 7}], key=str)
        assert store.get("mark") is None

    def test_the_second_transaction_to_change_a_row_has_a_conflict(self, store: Store, users: Table) -> None:
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

    def test_the_second_transaction_to_add_a_key_has_a_conflict(self, store: Store, users: Table) -> None:
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
        tx.table("users").delete("true")
        table = tx.table("users")
        tx.rollback()
        for use in (lambda: tx.table("users"), lambda: table.delete("true"), tx.commit, lambda: tx.put("a", 1)):
            with refuses("MP410"):
                use()
        assert len(users) == 3

    def test_values_are_put_in_the_same_commit(self, store: Store, users: Table) -> None:
        with store.begin() as tx:
            tx.put("flow/a", {"batch": 7})
            tx.put("flow/b", [1, 2])
            tx.table("users").delete("true")
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
