"""Files that Spark makes: by our class, with the permissions that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.engine.spark.session import NAME, prepare_streams


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_permissions_are_set_without_a_process(spark: Any, tmp_path: Path, mode: int) -> None:
    prepare_streams(spark, 1)
    hadoop = spark._jvm.org.apache.hadoop
    path = hadoop.fs.Path(f"file://{tmp_path}/ein Name.txt")
    local = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    assert local.getClass().getName() == NAME
    local.create(path, hadoop.fs.permission.FsPermission("777"), True, 4096, 1, 1 << 20, None).close()
    local.setPermission(path, hadoop.fs.permission.FsPermission(f"{mode:o}"))
    assert (tmp_path / "ein Name.txt").stat().st_mode & 0o777 == mode


def test_what_executors_get_is_left_alone(spark: Any) -> None:
    prepare_streams(spark, 1)
    usual = spark.sparkContext._jsc.hadoopConfiguration().get("fs.file.impl")
    assert usual == "org.apache.hadoop.fs.RawLocalFileSystem"
