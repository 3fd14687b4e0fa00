"""The rows that bench/features.py sends: streams as dicts, tables as Arrow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

USERS, ACCOUNTS, SYMBOLS, BANDS = 5_000, 10_000, 500, 20
EVENTS_PER_S = 100
LATE_EVERY, LATE_S = 50, 600
BAD_EVERY = 100
_START = datetime(2026, 3, 1, tzinfo=UTC)

Row = dict[str, Any]


def _moment(number: int, back_s: int = 0) -> str:
    seconds = number // EVENTS_PER_S - back_s
    return (_START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(number: int, *, late: bool = False, bad: bool = False) -> Row:
    """An event of a user that comes back after some 50 seconds, with a quantity from 0 to 99."""
    return {
        "id": number,
        "user_id": f"u{number * number * 31 % 7919 % USERS}",
        "symbol": f"S{number % SYMBOLS}",
        "quantity": "many" if bad and number % BAD_EVERY == 0 else number * 7 % 100,
        "price": number % 9000 / 100,
        "note": f"word{number % 7} word{number % 11} end",
        "ts": _moment(number, LATE_S if late and number % LATE_EVERY == 0 else 0),
    }


def quote(number: int, **_: bool) -> Row:
    return {"symbol": f"S{number % SYMBOLS}", "bid": number % 8000 / 100, "ts": _moment(number)}


def visit(number: int, **_: bool) -> Row:
    return {
        "id": number,
        "place": {"city": f"city {number % 50}", "zip": number % 9999},
        "tags": [f"t{number % 5}", f"t{number % 3}", "all"],
        "attributes": {"a": f"{number % 10}", "b": "x"},
    }


MAKERS: dict[str, Callable[..., Row]] = {"events": event, "quotes": quote, "visits": visit}


def rows(stream: str, first: int, count: int, *, late: bool, bad: bool) -> list[Row]:
    """So many records of a stream, from a number on; time goes on with the number."""
    make = MAKERS[stream]
    return [make(number, late=late, bad=bad) for number in range(first, first + count)]


def tables() -> dict[str, pa.Table]:
    """What the tables hold at the start."""
    owners = [f"u{n}" for n in range(ACCOUNTS)]
    numbers = pa.array(range(ACCOUNTS), pa.int64())
    accounts = pa.table({"account_id": numbers, "owner": owners, "n": numbers})
    symbols = [f"S{n}" for n in range(SYMBOLS)]
    low = [n * 100 // BANDS for n in range(BANDS)]
    high = [first + 100 // BANDS - 1 for first in low]
    return {
        "users": pa.table(
            {"user_id": owners, "tier": ["BASIC" if n % 10 else "GOLD" for n in range(ACCOUNTS)], "n": numbers}
        ),
        "symbols": pa.table({"symbol": symbols, "sector": [f"sector {n % 7}" for n in range(SYMBOLS)]}),
        "bands": pa.table(
            {
                "band": [f"b{n}" for n in range(BANDS)],
                "low": pa.array(low, pa.int32()),
                "high": pa.array(high, pa.int32()),
            }
        ),
        "accounts": accounts,
        "owned": accounts,
    }


def rounds(count: int) -> tuple[int, int]:
    """How many batches of so many rows warm up, and how many are measured."""
    return (3, 5) if count <= 500 else (2, 3) if count <= 10_000 else (1, 2)
