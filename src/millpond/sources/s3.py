"""S3: objects of a bucket, read as files are; followed as a stream, read whole as a table.

Guarantee: exactly once. As a stream every record of each object is read once, in the order of modification; as a table
the whole content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.contracts.feeder import Feeder, TableReader
from millpond.contracts.source import Found, Mode, Patience, SourcePlugin, SourceSpec
from millpond.errors import SourceError
from millpond.objects.options import NOTIFICATIONS, S3_OPTIONS, wrong_bucket
from millpond.options import SPAN, Option
from millpond.sources.files.source import OPTIONS as FILE_OPTIONS
from millpond.sources.files.source import PLUGIN as FILES
from millpond.sources.files.source import wrong_text_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An object exists as a whole, and a listing costs a request.
NOT_OF_FILES = ("file.create.empty", "watch.debounce", "watch.interval")
OPTIONS = (
    *(option for option in FILE_OPTIONS if option.name not in NOT_OF_FILES),
    Option("watch.interval", SPAN, "5s", "How often the bucket is listed, or its queue is read."),
    *S3_OPTIONS,
    *NOTIFICATIONS,
)


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI or its options, as a sentence."""
    if spec.uri.params:
        return "An S3 URI has no parameters; options are written in WITH (...)."
    return wrong_bucket(spec.uri, spec.values) or wrong_text_options(spec)


def open_feeder(spec: SourceSpec) -> Feeder:
    from millpond.sources.files.feeder import FileFeeder
    from millpond.sources.files.objects import ObjectWhere

    return FileFeeder(spec, where=ObjectWhere(spec))


def open_table(spec: SourceSpec) -> TableReader:
    from millpond.sources.files.objects import ObjectWhere
    from millpond.sources.files.table import FileTable

    return FileTable(spec, where=ObjectWhere(spec))


def sample(spec: SourceSpec, spark: Callable[[], SparkSession]) -> Found:
    from millpond.sources.files.discovery import discover_columns
    from millpond.sources.files.objects import ObjectWhere

    where = ObjectWhere(spec)
    try:
        return discover_columns(spec, where)
    except SourceError as error:
        found = where.named(error)
        if found.code in ("MP501", "MP506", "MP507", "MP508"):
            return Found(missing=True, detail=found.problems[0].message, error=found)
        raise found from error
    finally:
        where.close()


def patience(spec: SourceSpec) -> Patience:
    from millpond.sources.files import listing

    return listing.patience(spec)


PLUGIN = SourcePlugin(
    name="s3",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.SNAPSHOT,
    hidden=FILES.hidden,
    sample=sample,
    open_feeder=open_feeder,
    open_table=open_table,
    watched=FILES.watched,
    pace=(*FILES.pace, "s3.*", "sqs.*"),
    patience=patience,
    validate=validate,
    implied=FILES.implied,
)
