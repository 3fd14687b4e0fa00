"""The Java process that Spark runs in: how it is started, and whether it is still there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millpond.errors import FlowError

GONE_HINT = "Start again: nothing is lost. Java may have been ended from outside, or for want of memory."
# What decides the encoding of file names, the first that is set.
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")

# What Java writes is for its own user.
PRIVATE_UMASK = 0o077


def launch_java(conf: Mapping[str, str], log_file: Path | None) -> None:
    """Start Java unless it runs. What it prints goes to `log_file` (nowhere without one), never to the terminal.

    It is outside of our process group: a signal to all of it, as `timeout` sends, is for us, who let the batch under
    way end and need Spark for that. Java ends when we do."""
    if has_ended():
        _forget()
    if SparkContext._gateway is not None:
        return
    settings = SparkConf().setAll(list(conf.items()))
    target = os.open(log_file or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with _file_names_in_utf8():
            popen = {"start_new_session": True, "stdout": target, "stderr": target, "umask": PRIVATE_UMASK}
            SparkContext._ensure_initialized(gateway=launch_gateway(settings, popen))
    finally:
        os.close(target)


def has_ended() -> bool:
    """Whether Java was started by this process and is gone. Callable from any thread, at no cost."""
    process = _process()
    return process is not None and process.poll() is not None


def is_ending() -> bool:
    """Whether Java is gone or on its way out: then whatever fails, fails because of that."""
    gateway: Any = SparkContext._gateway
    if gateway is None or has_ended():
        return gateway is not None
    try:
        return bool(gateway.jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except Exception:
        # Java answers this question as long as it answers any.
        return True


def java_gone() -> FlowError:
    """MP705 for an app whose Java has ended."""
    return FlowError("MP705", "Spark has ended: its Java process is gone.", hint=GONE_HINT)


def _process() -> Popen[bytes] | None:
    gateway = SparkContext._gateway
    # An attribute that is not there would be looked for in Java.
    process = None if gateway is None else gateway.__dict__.get("proc")
    return process if isinstance(process, Popen) else None


def _forget() -> None:
    """Let PySpark start a new Java in place of one that is gone."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextmanager
def _file_names_in_utf8() -> Iterator[None]:
    """Java takes the encoding of file names from the locale: under `LC_ALL=C` it could open none beyond ASCII."""
    named = next((os.environ[name] for name in _LOCALE if os.environ.get(name)), "")
    if "utf" in named.lower():
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        del os.environ["LC_ALL"]
        if before is not None:
            os.environ["LC_ALL"] = before
