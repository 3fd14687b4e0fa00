"""Nobody but the app's user can read what an app keeps, nor ask its Spark for data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

APP = """
import sys, os, json, stat
import millpond as mp
from pathlib import Path

os.umask(0o022)
folder = Path(sys.argv[1])
(folder / "in.jsonl").write_text("".join(json.dumps({"k": n % 7, "v": n}) + "\\n" for n in range(100)))
sql = f'''
CREATE STREAM s FROM 'file://{folder}/in.jsonl';
CREATE TABLE t AS SELECT k, collect_set(v) AS vs FROM s GROUP BY k;
CREATE TABLE l AS SELECT * FROM 'file://{folder}/in.jsonl';
INSERT INTO 'file://{folder}/out' SELECT k, v FROM s;
'''
app = mp.App(sql=sql, state=folder / "state")
app.run_once()
app.start()
# Of more rows than are handed over in memory, by a shuffle that Spark writes to its local folder.
spark = app._open().spark()
spark.range(300000).repartition(3).selectExpr("id % 100 AS k").groupBy("k").count().collect()
spark.range(10).cache().count()
own = folder / "state" / "spark"
files = [p for p in (folder / "state").rglob("*") if not p.is_socket()]
print(json.dumps({
    "open": sorted(str(p.relative_to(folder)) for p in files if p.lstat().st_mode & 0o077),
    "spark": sorted({p.relative_to(own).parts[0] for p in own.rglob("*")}),
}))
app.stop()
print(json.dumps({"left": own.exists()}))
"""


@pytest.mark.process
@pytest.mark.spark
def test_a_state_directory_is_private_and_sparks_files_go_with_the_app(tmp_path: Path) -> None:
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    environment = {**os.environ, "TMPDIR": str(elsewhere)}
    command = [sys.executable, "-c", APP, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found, after = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert found["open"] == []
    assert "local" in found["spark"]
    assert after == {"left": False}
    assert [path.name for path in elsewhere.iterdir()] == []
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").glob("*.jsonl")} == {0o644}


SHARED = """
import sys, json
import millpond as mp
from pathlib import Path

folder = Path(sys.argv[1])
first, second = mp.App(sql="CREATE TABLE t (a INT);"), mp.App(sql="CREATE TABLE t (a INT);", state=folder / "second")
spark = first._open().spark()
made = first._temporary
second._open().spark()
first.stop()
# A shuffle, which writes to the local folder.
found = spark.range(30000).repartition(3).selectExpr("id % 7 AS k").groupBy("k").count().collect()
kept = [path.name for path in made.iterdir()]
second.stop()
print(json.dumps([len(found), kept, made.exists(), (folder / "second" / "spark").exists()]))
"""


@pytest.mark.process
@pytest.mark.spark
def test_sparks_files_stay_until_the_last_app_of_a_process_stops(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHARED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [7, ["spark"], False, False]


TWICE = """
import shutil, sys
import millpond as mp
from pathlib import Path

rows = "CREATE TABLE t AS SELECT seq % 7 AS k, COUNT(*) AS n FROM 'generate://?rows=1000' GROUP BY seq % 7;"
for name in ("first", "second"):
    state = Path(sys.argv[1]) / name
    app = mp.App(sql=rows, state=state)
    app.run_once()
    spark = app._open().spark()
    if name == "second":
        # Java unpacks its native library at the first use.
        print(spark._jvm.com.github.luben.zstd.Zstd.compress(bytearray(b"a" * 1000)) is not None)
    app.stop()
    shutil.rmtree(state)
"""


@pytest.mark.process
@pytest.mark.spark
def test_java_unpacks_libraries_after_the_state_directory_of_the_first_app_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWICE, str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines() == ["True"], done.stderr
    assert list(tmp_path.glob("millpond-java-*")) == []


@pytest.mark.spark
def test_spark_answers_nobody_without_the_secret(spark: Any) -> None:
    jvm = spark._jvm
    environment = jvm.org.apache.spark.SparkEnv.get()
    assert environment.securityManager().isAuthenticationEnabled()
    network = jvm.org.apache.spark.network
    nothing = jvm.scala.Option.empty()
    conf = network.netty.SparkTransportConf.fromSparkConf(environment.conf(), "shuffle", 1, nothing, nothing)
    context = network.TransportContext(conf, network.server.NoOpRpcHandler())
    client = context.createClientFactory().createClient("127.0.0.1", environment.blockManager().blockManagerId().port())
    try:
        with pytest.raises(Exception, match=r"(?i)sasl|auth"):
            client.sendRpcSync(jvm.java.nio.ByteBuffer.wrap(b"give me a block"), 10_000)
    finally:
        client.close()
