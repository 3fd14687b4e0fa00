"""The S3 sink: a folder of a bucket to which each batch adds complete objects.

Guarantee: exactly once. Files are staged in the state directory, or in the storage of a cluster, before the commit, and
written as objects after it; a write that is repeated after a crash writes the same bytes under the same key.
"""

from __future__ import annotations

from pathlib import Path

from millpond.contracts.sink import Sink, SinkPlugin, SinkSpec
from millpond.errors import SinkError
from millpond.faults import reach
from millpond.objects.options import S3_OPTIONS, wrong_bucket
from millpond.sinks.file import OPTIONS as FILE_OPTIONS
from millpond.sinks.file import FileSink, fits

OPTIONS = (*FILE_OPTIONS, *S3_OPTIONS)
STAGING = "staging"
# How a failure of a bucket is called where it is written.
CODES = {"MP506": "MP602"}


class S3Folder:
    """A Destination; a file is removed when its object exists."""

    def __init__(self, spec: SinkSpec) -> None:
        from millpond.objects.bucket import Bucket

        assert spec.folder is not None, "an app that opens a sink gives it a folder"
        self.staging = spec.folder / STAGING
        self._prefix = spec.uri.path.strip("/")
        self._bucket = Bucket(
            spec.uri, spec.values, lambda code, text, hint: SinkError(CODES.get(code, "MP601"), text, hint=hint)
        )

    def show(self, file: Path, name: str) -> None:
        self._bucket.put(file, f"{self._prefix}/{name}" if self._prefix else name)
        reach("sink.object.written")
        file.unlink()

    def settle(self) -> None:
        """An object is durable when it was written."""


def open_sink(spec: SinkSpec) -> Sink:
    return FileSink(spec, S3Folder(spec))


def validate(spec: SinkSpec) -> str | None:
    """The error of a URI as a sentence, or None."""
    if set("*?[") & set(spec.uri.path):
        return "An S3 sink is one folder, not a pattern."
    return wrong_bucket(spec.uri, spec.values)


PLUGIN = SinkPlugin(
    name="s3",
    options=OPTIONS,
    guarantee="exactly once",
    open=open_sink,
    validate=validate,
    fits=fits,
    staging=(STAGING,),
)
