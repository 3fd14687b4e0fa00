"""The hidden column `_versions`: the versions of the tables that a statement reads, as its events see them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from millpond.engine.batch_run import BatchRun
from millpond.engine.spark.transfer import Dataset
from millpond.engine.work import Work
from millpond.plan.history_model import HISTORY
from millpond.plan.model import BESIDE, VERSIONS, Step, reads_versions


def with_versions(run: BatchRun, step: Step) -> BatchRun:
    """The batch with the column, if the statement reads it and its stream has no column of this name."""
    relation = add_versions(run.work, step, run.batch.relation)
    return run if relation is run.batch.relation else replace(run, batch=replace(run.batch, relation=relation))


def add_versions(work: Work, step: Step, relation: Dataset) -> Dataset:
    """The same for the rows of a batch."""
    query = step.query if step.aggregate is None else step.aggregate.rows
    query = query if step.over is None else step.over.rows
    if not work.cache.once("reads versions", query, lambda: reads_versions(query)):
        return relation
    if any(c.lower() == VERSIONS.name for c in relation.schema.names):
        return relation
    return _added(relation, _seen(work, step))


def _seen(work: Work, step: Step) -> dict[str, int]:
    """The version of each table; one that this batch has changed before counts as the next one."""
    names = dict.fromkeys(access.table.removesuffix(BESIDE + HISTORY) for access in step.reads)
    return {name: work.table(name).version + (name.lower() in work.changed) for name in names}


def _added(relation: Dataset, seen: dict[str, int]) -> Dataset:
    if not isinstance(relation, pa.Table):
        pairs = [f.lit(part) for part in chain.from_iterable(seen.items())]
        return relation.withColumn(VERSIONS.name, f.create_map(*pairs).cast("map<string,bigint>"))
    count = relation.num_rows
    names = pa.array(list(seen) * count, pa.string())
    numbers = pa.array(list(seen.values()) * count, pa.int64())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(seen))
    return relation.append_column(VERSIONS.name, pa.MapArray.from_arrays(offsets, names, numbers))
