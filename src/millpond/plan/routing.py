"""Routing: the rules that select the engine, Arrow or Spark, as data for explain and the engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.contracts.evaluator import Engine, Limits, Route
from millpond.plan.model import Access, AccessKind
from millpond.settings import Settings, is_local

# `MILLPOND_ENGINE=spark` makes Spark evaluate everything, to test that both engines return the same rows.
ENGINE = "MILLPOND_ENGINE"


def engine_asked() -> Engine | None:
    """The engine that the environment variable selects, or None."""
    asked = os.environ.get(ENGINE, "").lower()
    return Engine(asked) if asked in tuple(Engine) else None


def limits_of(settings: Settings) -> Limits:
    """The limits by 'driver.max.rows'. On a cluster, the driver does not read more rows of any source."""
    return Limits(settings["driver.max.rows"], is_local=is_local(settings["master"]))


@dataclass(frozen=True)
class Facts:
    """The facts about the work to be routed; `rows` of its batch are unknown to the planner. `refusal` is what Arrow
    does not support in it, "" for nothing."""

    refusal: str = ""
    rows: int | None = None
    in_spark: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Rule:
    """Selects an engine if `applies` is true; `reason` may contain the refusal and the limit."""

    applies: Callable[[Facts], bool]
    engine: Engine
    reason: str


# The first rule that applies is used.
RULES = (
    Rule(lambda facts: engine_asked() is Engine.SPARK, Engine.SPARK, f"{ENGINE}=spark"),
    Rule(lambda facts: bool(facts.refusal), Engine.SPARK, "Arrow does not support {refusal}"),
    Rule(lambda facts: facts.in_spark, Engine.SPARK, "the batch has more than {limit:,} rows"),
    Rule(
        lambda facts: facts.rows is not None and facts.rows > facts.limits.driver_rows,
        Engine.SPARK,
        "the batch has more than {limit:,} rows",
    ),
    Rule(lambda facts: facts.rows is not None, Engine.ARROW, "the batch has at most {limit:,} rows"),
    Rule(lambda facts: True, Engine.ARROW, "Arrow supports all of it; Spark for batches of more than {limit:,} rows"),
)


def route(facts: Facts) -> Route:
    """The engine for some work."""
    rule = next(rule for rule in RULES if rule.applies(facts))
    return Route(rule.engine, rule.reason.format(refusal=facts.refusal, limit=facts.limits.driver_rows))


# A smaller table is transferred to Spark as a whole: once per version costs less than a lookup in every batch.
WHOLE_ROWS = 5_000
# Collecting the keys of a batch in Spark takes a separate job, which is worth it for tables this much larger.
LARGE_BATCH_FACTOR = 4
# Keys that only Spark can evaluate need a query, which is worth it for tables of this size.
KEYS_BY_SPARK_ROWS = 100_000


def ways_on_driver(
    access: Access | None, key: tuple[str, ...], indexes: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """The columns by which Arrow looks up rows of a table: the key or an index, unless the user wrote SNAPSHOT."""
    if access is not None and access.hinted and access.how is AccessKind.SNAPSHOT:
        return ()
    return (key, *indexes) if key else indexes


def fetched_for_spark(access: Access | None, table_rows: int, batch_rows: int, *, batch_on_driver: bool) -> bool:
    """Whether Spark gets only the rows of the batch's keys instead of the whole table."""
    if access is None:
        return False
    if access.hinted:
        return access.how is AccessKind.LOOKUP
    return pays_to_fetch(table_rows, batch_rows, batch_on_driver=batch_on_driver)


def pays_to_fetch(table_rows: int, batch_rows: int, *, batch_on_driver: bool) -> bool:
    """Whether looking up the rows of a batch's keys costs less than reading the whole table."""
    return table_rows > (WHOLE_ROWS if batch_on_driver else batch_rows * LARGE_BATCH_FACTOR)
