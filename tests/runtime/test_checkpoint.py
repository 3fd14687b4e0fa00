"""Spark's own checkpoint says which feed files a batch consists of; where it does not, nothing is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.runtime.flows import flow
from millpond.runtime.flows.checkpoint import feed_files

APP = """
CREATE STREAM s (k INT, v STRING) FROM 'file://./in/*.jsonl' WITH ('max.rows.per.batch' = '2');
CREATE TABLE t (k INT PRIMARY KEY, v STRING);
INSERT INTO t SELECT k, v FROM s;
"""


@pytest.mark.spark
def test_the_driver_reads_what_spark_would_have_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(f'{{"k": {k}, "v": "x{k}"}}\n' for k in range(9)))
    (tmp_path / "app.sql").write_text(APP)
    seen: list[tuple[Any, Any]] = []
    whole = flow.read_batch

    def compared(reader: Any, raw: Any, batch_id: int, files: Any, **others: Any) -> Any:
        assert files is not None
        wanted = reader.records(raw).toArrow()
        found = reader.on_driver(raw, files)
        assert found is not None
        seen.append((found.to_pylist(), wanted.sort_by([("_mp_major", "ascending"), ("_mp_minor", "ascending")])))
        assert found.schema.types == wanted.schema.types
        return whole(reader, raw, batch_id, files, **others)

    monkeypatch.setattr(flow, "read_batch", compared)
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark)
    app.run_once()
    assert [found for found, _ in seen] == [wanted.to_pylist() for _, wanted in seen]
    assert len(seen) == 5
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark) as again:
        assert again.query("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 9}]


def test_files_are_told_only_where_everything_is_as_expected(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    file = tmp_path / "feed one.parquet"
    file.touch()
    entry = f'{{"path":"file://{str(file).replace(" ", "%20")}","timestamp":1,"batchId":0}}'
    write("offsets/0", 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}')
    write("sources/0/0", f"v1\n{entry}")
    assert feed_files(tmp_path, 0) == [file]
    assert feed_files(tmp_path, 1) is None
    write("offsets/1", 'v1\n{}\n{"logOffset":2}')
    write("sources/0/2", f"v1\n{entry}")
    assert feed_files(tmp_path, 1) is None, "two numbers of the log in one batch"
    write("offsets/1", 'v1\n{}\n{"logOffset":1}')
    (tmp_path / "sources/0/2").unlink()
    later = entry.replace('"batchId":0', '"batchId":1')
    write("sources/0/1.compact", f"v1\n{entry}\n{later}")
    assert feed_files(tmp_path, 1) == [file], "Spark has put its log together"
    file.unlink()
    assert feed_files(tmp_path, 0) is None, "the file is gone"
    write("offsets/0", 'v1\n{}\n{"logOffset":0}\n{"logOffset":0}')
    assert feed_files(tmp_path, 0) is None, "two sources"
