"""An app on a Spark cluster of several users: rows in folders and in S3, processes that are killed, large batches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.cluster.servers import DRIVER, HOME, HOST, Cluster, DriverPage, executors, kill_executor, wait_for
from tests.kafka.topics import Topic
from tests.objects.conftest import Bucket
from tests.objects.servers import ACCESS, REGION, SECRET
from tests.ports import free_ports

from millpond.engine.spark.java import connector_jars

MILLPOND = (sys.executable, "-m", "millpond.cli.main")
FILE_EVENTS = 9_000
LARGE = 5_000_000 if os.environ.get("MILLPOND_SOAK") else 250_000
USERS = 12
RETURNED_MAX, MEMORY_KB_MAX = 200_000, 1_500_000
LONGEST_S = 500.0

STREAM = """
SET spark.conf.spark.sql.shuffle.partitions = '2';
CREATE STREAM events (id BIGINT, user_id STRING, quantity INT) FROM 'file://{data}/in/*.jsonl'
  WITH ('max.rows.per.batch' = '5000000');
CREATE TABLE users AS SELECT * FROM 'file://{data}/users.csv';
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(quantity) AS quantity FROM events GROUP BY user_id
  WITH ('backend' = 'delta');
"""
JOINED = """
INSERT INTO 'file://{data}/out' SELECT e.id, u.tier FROM events e JOIN users u ON u.user_id = e.user_id
"""
# Each batch is larger than the driver takes, and slow enough to be interrupted.
SLOW = f"""
SET driver.max.rows = 1000;
{STREAM} {JOINED} WHERE length(sha2(repeat(e.user_id, 4000 + CAST(e.id % 7 AS INT)), 512)) = 128;
"""
IN_S3 = """
CREATE TABLE log (id BIGINT, user_id STRING) WITH ('backend' = 'delta', 'path' = 's3://{bucket}/log', {options});
INSERT INTO log SELECT id, user_id FROM events WHERE quantity = 3;
INSERT INTO 's3://{bucket}/out' WITH ({options}) SELECT id FROM events WHERE quantity = 4;
"""

# As a user of spark-submit writes it.
PROGRAM = """
import json, resource, sys, urllib.request
import millpond as mp
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
for given in (session, lambda: session):
    try:
        mp.App(sql="CREATE TABLE t (n INT);", spark=given).query("SELECT approx_count_distinct(n) FROM t")
        sys.exit("a cluster without storage was accepted")
    except mp.MillpondError as error:
        assert "MP905" in str(error), error
app = mp.App("app.sql", state="state", spark=session, settings={"storage": sys.argv[1]})
app.run_once()
app.stop()
context = session.sparkContext
with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages") as page:
    stages = json.load(page)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(context.master, sum(s["resultSize"] for s in stages), sum(s["inputRecords"] for s in stages), memory)
session.stop()
"""


class Driver:
    """A driver in a folder of its own, on data that all drivers share."""

    def __init__(
        self, cluster: Cluster, name: str, text: str, data: Path, *words: str, jars: Path | None = None
    ) -> None:
        folder = prepared(cluster, name, text)
        (port,) = free_ports(1)
        self.page, self._log = DriverPage(port), folder / "log.txt"
        settings = ["--master", cluster.master, "--storage", str(data / "storage"), "--state", str(folder / "state")]
        (folder / "millpond.toml").write_text(f'[spark.conf]\n"spark.ui.port" = "{port}"\n')
        command = [*MILLPOND, "run", "app.sql", "--no-http", *settings, *words]
        with self._log.open("wb") as log:
            how = {**cluster.accounts.of(DRIVER), "cwd": folder, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, env=around(folder, jars), start_new_session=True, **how)

    def failure(self) -> str | None:
        return None if self.process.poll() is None else self._log.read_text()

    def busy_executor(self) -> str:
        """Wait until an executor works on a batch."""
        return str(wait_for(self.page.busy_executor, "an executor runs a task", self.failure))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def around(folder: Path, jars: Path | None = None) -> dict[str, str]:
    """The environment of a driver."""
    connectors = {} if jars is None else {"MILLPOND_JARS": str(jars)}
    own = {"HOME": str(folder), "MILLPOND_SPARK_UI": "true", "SPARK_LOCAL_IP": HOST, "MILLPOND_CLASS_ARCHIVE": "off"}
    return os.environ | own | connectors | {"MILLPOND_DRIVER_MEMORY": "1g", "PYSPARK_PYTHON": sys.executable}


def prepared(cluster: Cluster, name: str, text: str) -> Path:
    folder = cluster.folder_for(name)
    (folder / "app.sql").write_text(text)
    return folder


def data_in(cluster: Cluster, name: str) -> Path:
    """A folder that all processes share, with a table and no events yet."""
    data = cluster.folder_for(name)
    cluster.folder_for(f"{name}/in")
    (data / "users.csv").write_text("user_id,tier\n" + "".join(f"u{n},{'ab'[n % 2]}\n" for n in range(10)))
    return data


def give(data: Path, number: int, events: int = FILE_EVENTS) -> None:
    """One more file of events, which appears as a whole."""
    with (data / "new.tmp").open("w") as file:
        for n in range(number * events, (number + 1) * events):
            file.write(f'{{"id": {n}, "user_id": "u{n % USERS}", "quantity": {n % 7}}}\n')
    (data / "new.tmp").rename(data / "in" / f"{number}.jsonl")


def written(data: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for file in (data / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(rows, key=lambda row: int(row["id"]))


def expected(events: int) -> list[dict[str, object]]:
    return [{"id": n, "tier": "ab"[n % USERS % 2]} for n in range(events) if n % USERS < 10]


def has_rows(data: Path, files: int) -> Callable[[], bool]:
    return lambda: len(written(data)) >= len(expected(files * FILE_EVENTS))


@pytest.mark.process
def test_kills_of_executors_workers_and_drivers_cost_time_but_no_rows(cluster: Cluster, bucket: Bucket) -> None:
    data = data_in(cluster, "data")
    given = {"s3.endpoint": bucket.endpoint, "s3.region": REGION, "s3.access.key": ACCESS, "s3.secret.key": SECRET}
    options = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    text = (SLOW + IN_S3).format(data=data, bucket=bucket.name, options=options)
    give(data, 0)
    driver = Driver(cluster, "first", text, data)
    kill_executor(cluster.folder, driver.busy_executor())
    wait_for(has_rows(data, 1), "a batch survives its executor", driver.failure)

    give(data, 1)
    busy = driver.busy_executor()
    worker = next(worker for worker, id_, _ in executors(cluster.folder) if id_ == busy)
    cluster.kill_worker(worker)
    wait_for(has_rows(data, 2), "a batch survives its worker", driver.failure)
    cluster.add_worker("worker9")

    give(data, 2)
    driver.busy_executor()
    driver.kill()
    give(data, 3)
    # The disk of the state directory is now at another place, as on another machine.
    shutil.move(cluster.folder / "first" / "state", cluster.folder_for("second") / "state")
    again = Driver(cluster, "second", text, data, "--once")
    assert again.process.wait(LONGEST_S) == 0, again.failure()
    events = 4 * FILE_EVENTS
    assert written(data) == expected(events)
    check_totals(data, events)
    check_bucket(bucket, events)


@pytest.mark.process
def test_executors_read_kafka_and_a_killed_driver_loses_and_doubles_nothing(
    cluster: Cluster, topic: Callable[..., Topic]
) -> None:
    """Each batch is larger than the driver takes, so that executors read its messages; the driver is killed in one."""
    source, data = topic(4), data_in(cluster, "messages")
    events = [{"id": n, "user_id": f"u{n % USERS}", "quantity": n % 7} for n in range(2 * FILE_EVENTS)]
    source.send(*events[:FILE_EVENTS])
    text = SLOW.format(data=data).replace(f"'file://{data}/in/*.jsonl'", source.uri)
    jars = cluster.folder_for("jars")
    for jar in connector_jars("kafka", os.environ):
        shutil.copy(jar, jars)
    driver = Driver(cluster, "consumer", text, data, jars=jars)
    driver.busy_executor()
    driver.kill()
    source.send(*events[FILE_EVENTS:])
    again = Driver(cluster, "consumer", text, data, "--once", jars=jars)
    assert again.process.wait(LONGEST_S) == 0, again.failure()
    assert written(data) == expected(len(events))
    check_totals(data, len(events))


def check_totals(data: Path, events: int) -> None:
    """What other programs read of the table in the storage."""
    (path,) = (data / "storage").glob("*/store/delta/totals")
    found = {row["user_id"]: (row["n"], row["quantity"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    counts, sums = Counter(f"u{n % USERS}" for n in range(events)), Counter[str]()
    for n in range(events):
        sums[f"u{n % USERS}"] += n % 7
    assert found == {user: (counts[user], sums[user]) for user in counts}


def check_bucket(bucket: Bucket, events: int) -> None:
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    options = {**keys, "AWS_ENDPOINT_URL": bucket.endpoint, "AWS_ALLOW_HTTP": "true"}
    log = DeltaTable(f"s3://{bucket.name}/log", storage_options=options).to_pyarrow_table().column("id").to_pylist()
    assert sorted(log) == [n for n in range(events) if n % 7 == 3]
    bodies = [bucket.get(key) for key in bucket.all_keys() if key.startswith("out/")]
    ids = [json.loads(line)["id"] for body in bodies for line in body.splitlines()]
    assert sorted(ids) == [n for n in range(events) if n % 7 == 4]


@pytest.mark.process
def test_a_large_batch_of_spark_submit_does_not_pass_through_the_driver(cluster: Cluster) -> None:
    data = data_in(cluster, "large")
    give(data, 0, LARGE)
    folder = prepared(cluster, "submit", f"{STREAM} {JOINED};".format(data=data))
    (folder / "program.py").write_text(PROGRAM)
    (port,) = free_ports(1)
    conf = {"hadoop.fs.permissions.umask-mode": "002", "ui.port": port, "dynamicAllocation.enabled": "true"}
    conf |= {"dynamicAllocation.shuffleTracking.enabled": "true", "dynamicAllocation.maxExecutors": "2"}
    given = [word for name, value in conf.items() for word in ("--conf", f"spark.{name}={value}")]
    words = ["--master", cluster.master, "--driver-memory", "1g", *given, "program.py", str(data / "storage")]
    how = {**cluster.accounts.of(DRIVER), "cwd": folder, "env": around(folder), "capture_output": True}
    command = [str(HOME / "bin" / "spark-submit"), *words]
    done = subprocess.run(command, encoding="utf-8", check=False, timeout=LONGEST_S, **how)
    assert done.returncode == 0, done.stderr
    master, returned, read, memory_kb = done.stdout.split()
    assert master == cluster.master
    assert sum(1 for file in (data / "out").glob("*.jsonl") for _ in file.open()) == len(expected(LARGE))
    check_totals(data, LARGE)
    # Groups, counts and the names of files return to the driver, however many rows there are.
    assert int(read) >= LARGE
    assert 0 < int(returned) < RETURNED_MAX, returned
    assert int(memory_kb) < MEMORY_KB_MAX, memory_kb
