"""`GET /metrics`, and the alert rules and dashboard that use them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.fake_app import progress
from tests.serve.asking import Browser
from tests.serve.conftest import Start

from millpond.engine.progress import AppProgress, FlowProgress
from millpond.histogram import BOUNDS_S, Durations, Histogram
from millpond.serve.metrics import COUNTER, HISTOGRAM, METRICS, exposition

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"
# Made by Prometheus itself.
FOREIGN = {"up"}


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples of each metric, as Prometheus's own parser reads them."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def names() -> set[str]:
    """The names under which samples appear."""
    suffixes = {COUNTER: ("_total",), HISTOGRAM: ("_bucket", "_sum", "_count")}
    return {f"{m.name}{suffix}" for m in METRICS for suffix in suffixes.get(m.kind, ("",))}


def test_prometheus_reads_the_metrics_of_an_app(start: Start) -> None:
    app, browser = start()
    app.execute("INSERT INTO users VALUES ('new', NULL, NULL, NULL)")
    answer = browser.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = parsed(answer.text)
    assert found["millpond_table_rows"][("table", "users"),] == 4
    assert found["millpond_table_state"][("state", "ready"), ("table", "users")] == 1
    assert found["millpond_table_state"][("state", "failed"), ("table", "users")] == 0
    assert found["millpond_dead_letters"][()] == 0
    assert found["millpond_commit_seconds_count"][()] >= 2
    assert found["millpond_sync_seconds_sum"][()] > 0
    assert found["millpond_open_transactions"][()] == 0
    assert found["millpond_memory_bytes"][("process", "python"),] > 1_000_000
    with app.transaction():
        assert parsed(browser.get("/metrics").text)["millpond_open_transactions"][()] == 1


@pytest.mark.spark
def test_batches_are_counted_by_engine(start: Start, spark: Any) -> None:
    app, browser = start("CREATE STREAM s (n INT) FROM memory://s; CREATE TABLE t AS SELECT n FROM s;", spark)
    app.feed("memory://s").send([{"n": 1}, {"n": 2}])
    app.drain()
    found = parsed(browser.get("/metrics").text)
    assert found["millpond_flow_rows_total"][("flow", "s"),] == 2
    engines = {dict(labels)["engine"]: count for labels, count in found["millpond_batch_seconds_count"].items()}
    assert sum(engines.values()) == sum(found["millpond_flow_batches_total"].values()) >= 1
    assert set(engines) == {"arrow", "spark"}
    stats = browser.get("/api/stats").json["flows"][0]
    assert sum(stats["durations"]["arrow"]["counts"]) == engines["arrow"]


def test_two_flows_of_one_name_are_two_series() -> None:
    flow = FlowProgress('a "quoted"\nname', "s", "running", 1, 1, 7, 1.0, 1.0, None, "")
    found = parsed(exposition(AppProgress("app", "running", 1.0, flows=(flow, flow))).decode())
    assert found["millpond_flow_rows_total"] == {
        (("flow", 'a "quoted"\nname'),): 7,
        (("flow", 'a "quoted"\nname (2)'),): 7,
    }


def test_what_is_not_known_has_no_sample() -> None:
    found = parsed(exposition(progress()).decode())
    assert "millpond_source_lag_records" not in found
    assert "millpond_flow_watermark_delay_seconds" not in found
    assert found["millpond_flow_lag_records"][("flow", "trades"),] == 7


def test_a_token_guards_the_metrics_too(start: Start) -> None:
    _, browser = start(http_token="t")
    assert browser.get("/metrics").status == 401
    assert browser.get("/metrics", authorization="Bearer t").status == 200


def test_durations_are_counted_by_their_upper_bounds() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.001, 0.0011, 1000.0):
        histogram.add(seconds)
    read = histogram.read()
    assert read.count == 4
    assert read.seconds == pytest.approx(1000.0021)
    assert list(read.cumulative())[:2] == [("0.001", 2), ("0.0025", 3)]
    assert list(read.cumulative())[-1] == ("+Inf", 4)
    assert len(Durations().counts) == len(BOUNDS_S) + 1


# Alerts and dashboard


def expressions() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((OPERATIONS / "alerts.yml").read_text("utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in json.loads((OPERATIONS / "grafana.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_alerts_and_panels_use_metrics_and_labels_that_exist(name: str, expression: str) -> None:
    used = set(re.findall(r"\bmillpond_\w+", expression)) | ({"up"} if expression.startswith("up") else set())
    assert used, name
    assert used <= names() | FOREIGN
    labels = {m.name: {*m.labels, "instance", "le"} for m in METRICS}
    for metric, chosen in re.findall(r"\b(millpond_\w+)\{([^}]*)\}", expression):
        base = re.sub(r"_(total|bucket|sum|count)$", "", metric) if metric not in labels else metric
        assert set(re.findall(r"(\w+)\s*=", chosen)) <= labels[base]


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((OPERATIONS / "alerts.yml").read_text("utf-8"))
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_promtool_accepts_the_rules_and_the_metrics(browser: Browser, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        # Without it, the rules are parsed and compared with the metrics above, and the metrics read by the parser of
        # prometheus_client.
        return
    subprocess.run([promtool, "check", "rules", str(OPERATIONS / "alerts.yml")], check=True, capture_output=True)
    text = browser.get("/metrics").body
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
