"""The trading example gives the numbers that a few lines of plain Python give."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.demo import folder

TRADES, QUOTES = 3_000, 300
SYMBOLS = ("CARP", "FERN", "HERON", "MOSS", "NEWT", "OTTER", "PIKE", "REED")


@dataclass(frozen=True)
class Trade:
    trade_id: str
    user_id: str
    symbol: str
    quantity: int
    price: Decimal


def price(symbol_no: int, move: int) -> Decimal:
    return Decimal(2000 + 1500 * symbol_no + move) / 100


def trades() -> Iterator[Trade]:
    for n in range(TRADES):
        amount = n * 611953 % 4999 % 100 + 1
        symbol_no = n * 15485863 % 7907 % 8
        yield Trade(
            trade_id=f"t{n:08}",
            user_id=f"u{n * 104729 % 7919 % 20 + 1:02}",
            symbol=SYMBOLS[symbol_no],
            quantity=-amount if n * 32452843 % 997 % 5 < 2 else amount,
            price=price(symbol_no, n * 49979687 % 3001 % 400),
        )


def quotes() -> dict[str, Decimal]:
    """The last price of every symbol."""
    return {SYMBOLS[n * 7 % 8]: price(n * 7 % 8, n * 86028121 % 3001 % 500) for n in range(QUOTES)}


def positions() -> dict[tuple[str, str], tuple[int, Decimal, int]]:
    found: dict[tuple[str, str], tuple[int, Decimal, int]] = defaultdict(lambda: (0, Decimal(0), 0))
    for trade in trades():
        size, value, count = found[trade.user_id, trade.symbol]
        found[trade.user_id, trade.symbol] = (
            size + trade.quantity,
            value + trade.quantity * trade.price,
            count + 1,
        )
    return found


def read_csv(name: str, key: str) -> dict[str, dict[str, str]]:
    with (folder() / name).open(encoding="utf-8", newline="") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def alerts() -> dict[str, Decimal]:
    limits = read_csv("limits.csv", "user_id")
    return {
        t.trade_id: t.quantity * t.price
        for t in trades()
        if abs(t.quantity) > int(limits[t.user_id]["max_quantity"])
        or abs(t.quantity * t.price) > Decimal(limits[t.user_id]["max_value"])
    }


def read_sink(sink: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted(sink.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return [json.loads(line, parse_float=Decimal) for line in lines]


@pytest.fixture(scope="module")
def desk(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """The example after one run, and the folder of its sinks."""
    from millpond.app.app import App

    folder_ = tmp_path_factory.mktemp("trading")
    variables = {"TRADES": str(TRADES), "QUOTES": str(QUOTES), "OUT": str(folder_ / "out")}
    app = App(folder() / "trading.sql", state=folder_ / "state", variables=variables, spark=spark)
    app.run_once()
    yield app, folder_ / "out"
    app.stop()


@pytest.mark.spark
def test_market_data_holds_the_last_quote_of_every_symbol(desk: tuple[Any, Path]) -> None:
    rows = desk[0].query("SELECT symbol, price FROM market_data").rows()
    assert {r["symbol"]: r["price"] for r in rows} == quotes()


@pytest.mark.spark
def test_positions_add_up_every_trade(desk: tuple[Any, Path]) -> None:
    rows = desk[0].query("SELECT * FROM positions").rows()
    assert {(r["user_id"], r["symbol"]): (r["size"], r["value"], r["trades"]) for r in rows} == positions()


@pytest.mark.spark
def test_profit_is_size_times_price_less_value(desk: tuple[Any, Path]) -> None:
    wanted = {key: size * quotes()[key[1]] - value for key, (size, value, _) in positions().items()}
    rows = desk[0].query("SELECT user_id, symbol, profit FROM profit").rows()
    assert {(r["user_id"], r["symbol"]): r["profit"] for r in rows} == wanted

    by_tier: dict[str, Decimal] = defaultdict(Decimal)
    profiles = read_csv("profiles.csv", "user_id")
    for (user_id, _), profit in wanted.items():
        by_tier[profiles[user_id]["tier"]] += profit
    rows = desk[0].query("SELECT tier, profit FROM profit_by_tier").rows()
    assert {r["tier"]: r["profit"] for r in rows} == by_tier


@pytest.mark.spark
def test_an_alert_is_written_for_each_trade_above_its_limits(desk: tuple[Any, Path]) -> None:
    wanted = alerts()
    assert 0 < len(wanted) < TRADES / 20
    written = read_sink(desk[1] / "alerts")
    assert {row["trade_id"]: row["value"] for row in written} == wanted
    assert len(written) == len(wanted)


@pytest.mark.spark
def test_every_trade_is_enriched_from_four_tables(desk: tuple[Any, Path]) -> None:
    profiles, symbols = read_csv("profiles.csv", "user_id"), read_csv("symbols.csv", "symbol")
    last, held = quotes(), positions()
    wanted = {
        t.trade_id: (
            profiles[t.user_id]["tier"],
            symbols[t.symbol]["sector"],
            last[t.symbol],
            held[t.user_id, t.symbol][0],
        )
        for t in trades()
    }
    written = read_sink(desk[1] / "enriched")
    assert len(written) == TRADES
    assert {r["trade_id"]: (r["tier"], r["sector"], r["market_price"], r["position"]) for r in written} == wanted


def test_the_example_ships_with_its_files() -> None:
    assert {f.name for f in folder().iterdir()} >= {"trading.sql", "profiles.csv", "symbols.csv", "limits.csv"}
