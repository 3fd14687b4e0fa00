"""S3 as a sink: objects are there after the commit, as a whole, and each row once."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.app.crashing import ended_states
from tests.objects.conftest import Bucket
from tests.objects.servers import ACCESS, REGION, SECRET

import millpond as mp
from millpond.contracts.sink import Mark, SinkSpec
from millpond.errors import MillpondError
from millpond.faults import OBJECT_POINTS, OPEN_FILE_POINTS
from millpond.options import Given, complete, read_options
from millpond.sinks.file import FileSink
from millpond.sinks.s3 import OPTIONS, S3Folder
from millpond.uris import parse_uri

Once = Callable[[str], mp.App]
FIRST, SECOND = Mark("flow", 0, 0), Mark("flow", 1, 0)


def opened(bucket: Bucket, folder: Path, endpoint: str = "", **more: str) -> FileSink:
    given = {"s3.endpoint": endpoint or bucket.endpoint, "s3.region": REGION}
    given |= {"s3.access.key": ACCESS, "s3.secret.key": SECRET}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    options = [Given(name, value) for name, value in given.items()]
    values = complete(read_options(options, OPTIONS, "test"), OPTIONS, {})
    spec = SinkSpec("k1", parse_uri(f"s3://{bucket.name}/out"), values, folder, folder=folder / "sink")
    return FileSink(spec, S3Folder(spec))


def numbers(bucket: Bucket) -> list[int]:
    return [json.loads(line)["n"] for key in bucket.all_keys() for line in bucket.get(key).splitlines()]


def rows(*found: int) -> pa.Table:
    return pa.table({"n": list(found)})


def test_an_app_writes_objects(bucket: Bucket, once: Once) -> None:
    sql = f"""INSERT INTO 's3://{bucket.name}/out' {bucket.options(format="parquet", partition_by="p")}
    SELECT seq AS n, seq % 2 AS p FROM 'generate://?rows=10&seed=1';"""
    once(sql)
    keys = bucket.all_keys()
    assert [key.split("/")[:2] for key in keys] == [["out", "p=0"], ["out", "p=1"]]
    assert pq.read_table(io.BytesIO(bucket.get(keys[0])))["n"].to_pylist() == [0, 2, 4, 6, 8]
    once(sql)
    assert bucket.all_keys() == keys


def test_nothing_is_seen_before_it_is_published_and_publishing_twice_changes_nothing(
    bucket: Bucket, tmp_path: Path
) -> None:
    sink = opened(bucket, tmp_path)
    staged = json.loads(json.dumps(sink.stage(rows(1, 2), FIRST)))
    assert bucket.all_keys() == []
    sink.publish(staged)
    sink.publish(staged)
    opened(bucket, tmp_path).publish(staged)
    assert bucket.all_keys() == ["out/flow-00000000-000-00000.jsonl"]
    assert numbers(bucket) == [1, 2]


def test_recovery_publishes_what_was_committed_and_discards_the_rest(bucket: Bucket, tmp_path: Path) -> None:
    sink = opened(bucket, tmp_path)
    staged = sink.stage(rows(1), FIRST)
    sink.stage(rows(2), SECOND)
    assert staged is not None
    again = opened(bucket, tmp_path)
    again.publish(staged)
    again.discard()
    assert numbers(bucket) == [1]
    assert list((tmp_path / "sink" / "staging").iterdir()) == []


def test_a_write_that_is_repeated_after_a_crash_writes_the_same_object(bucket: Bucket, tmp_path: Path) -> None:
    """The object was written, and the process ended before its file was removed."""
    sink = opened(bucket, tmp_path)
    staged = sink.stage(rows(1, 2), FIRST)
    assert staged is not None
    (file,) = (tmp_path / "sink" / "staging").rglob("part-*")
    bucket.put("out/flow-00000000-000-00000.jsonl", file.read_bytes())
    opened(bucket, tmp_path).publish(staged)
    assert numbers(bucket) == [1, 2]


def test_objects_take_the_rows_of_several_batches(bucket: Bucket, tmp_path: Path) -> None:
    sink = opened(bucket, tmp_path, file_max_rows="4")
    for batch in range(3):
        staged = sink.stage(rows(3 * batch, 3 * batch + 1, 3 * batch + 2), Mark("flow", batch, 0))
        assert staged is not None
        sink.publish(staged)
    assert [len(bucket.get(key).splitlines()) for key in bucket.all_keys()] == [4, 4]
    opened(bucket, tmp_path, file_max_rows="4")
    assert sorted(numbers(bucket)) == list(range(9))


# An app whose batches have half of the rows; `plain` is written as one object by each.
PROGRAM = """
from pathlib import Path
app = mp.App(sql={text!r}.replace("STATE", Path(state).name), state=state)
app.run_once()
app.stop()
"""
FOLDERS, SENT = (("grown", "plain"), 12) if os.environ.get("MILLPOND_SOAK") else (("grown",), 6)
POINTS = ("flow.worked", *OBJECT_POINTS, *OPEN_FILE_POINTS, "sink.renamed")


@pytest.mark.process
def test_a_kill_at_any_point_writes_each_row_once(bucket: Bucket, tmp_path: Path) -> None:
    made, ended = tmp_path / "made", set()
    made.mkdir()
    source = f"FROM 'generate://?rows={SENT}&seed=1' WITH ('max.rows.per.batch' = '{SENT // 2}')"
    options = {"plain": bucket.options(), "grown": bucket.options(file_max_rows="4")}
    text = "".join(
        f"INSERT INTO 's3://{bucket.name}/STATE/{name}' {options[name]} SELECT seq AS n {source};" for name in FOLDERS
    )
    for point, state, was_ended in ended_states(made, PROGRAM.format(text=text), POINTS):
        if was_ended:
            ended.add(point)
            app = mp.App(sql=text.replace("STATE", state.name), state=state)
            app.run_once()
            app.stop()
        for folder in FOLDERS:
            keys = [key for key in bucket.all_keys() if key.startswith(f"{state.name}/{folder}/")]
            found = [[json.loads(line)["n"] for line in bucket.get(key).splitlines()] for key in keys]
            assert sorted(n for rows in found for n in rows) == list(range(SENT)), (state, found)
            assert folder == "plain" or max(map(len, found)) <= 4
    assert ended == set(POINTS)


def test_a_server_that_is_away_keeps_what_was_staged(bucket: Bucket, tmp_path: Path) -> None:
    away = opened(bucket, tmp_path, endpoint="http://127.0.0.1:1")
    staged = away.stage(rows(1), FIRST)
    assert staged is not None
    with pytest.raises(MillpondError) as caught:
        away.publish(staged)
    assert caught.value.code == "MP602"
    opened(bucket, tmp_path).publish(staged)
    assert numbers(bucket) == [1]


def test_what_was_written_can_be_read(bucket: Bucket, once: Once) -> None:
    once(
        f"INSERT INTO 's3://{bucket.name}/out' {bucket.options()} SELECT seq AS n FROM 'generate://?rows=5&seed=1';"
        f"CREATE TABLE t (n BIGINT);"
    )
    app = once(f"CREATE OR REPLACE TABLE u AS SELECT n FROM 's3://{bucket.name}/out' {bucket.options()};")
    assert sorted(row["n"] for row in app.table("u").find().to_pylist()) == [0, 1, 2, 3, 4]
