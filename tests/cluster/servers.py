"""A Spark cluster of processes for the tests: a master and workers, from the installation of PySpark.

Where the tests run as root, the driver, the master and each worker are different users of one group, as on machines
that share nothing but a network file system.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from tests.ports import free_ports

import millpond

START_S = 120.0
WAIT_S = 240.0
HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent
# Java needs users that the system has.
USERS = ("daemon", "nobody", "games", "bin")
DRIVER = "driver"


class Accounts:
    """The users of the processes of a cluster, by the name of a process; all are the user of the tests if that is not
    root, or if others cannot read the installation."""

    def __init__(self) -> None:
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        found = [known[name] for name in USERS if name in known] if os.getuid() == 0 else []
        self._ids = [entry.pw_uid for entry in found]
        self._group = found[0].pw_gid if found else os.getgid()
        self._numbers: dict[str, int] = {DRIVER: 0}
        if self._ids and not self._can_read():
            self._ids = []

    def _can_read(self) -> bool:
        files = [Path(sys.executable), HOME / "bin" / "spark-class", Path(millpond.__file__)]
        checks = " && ".join(f"test -r '{file}'" for file in files)
        return subprocess.run(["sh", "-c", checks], check=False, **self.of(DRIVER)).returncode == 0

    def of(self, name: str) -> dict[str, Any]:
        """How a process is started as its user; what it writes, the group may change."""
        common: dict[str, Any] = {"umask": 0o002, "cwd": "/", "stdin": subprocess.DEVNULL}
        if not self._ids:
            return common
        number = self._numbers.setdefault(name, len(self._numbers))
        return {**common, "user": self._ids[number % len(self._ids)], "group": self._group, "extra_groups": []}

    def give(self, folder: Path, name: str) -> None:
        """Give a folder to a user and the group."""
        if self._ids:
            os.chown(folder, self.of(name)["user"], self._group)
        folder.chmod(0o775)


class Cluster:
    """A master and workers, each a process with a folder of its own; stopped by their process ids."""

    def __init__(self, workers: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="millpond-cluster-"))
        self.folder.chmod(0o755)
        self.accounts = Accounts()
        port, self._page = free_ports(2)
        self.master = f"spark://{HOST}:{port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("master", "master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(self._page))
        wait_for(lambda: bool(read_json(self._page, "json/")), "the master answers", self._failure)
        for number in range(workers):
            self.add_worker(f"worker{number}")
        wait_for(lambda: self.workers() == workers, "the workers are registered", self._failure)

    def add_worker(self, name: str) -> None:
        port, page = free_ports(2)
        places = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name / "work")]
        self._start(name, "worker.Worker", *places, *size, self.master)

    def workers(self) -> int:
        """The number of workers that the master sees."""
        return int(read_json(self._page, "json/").get("aliveworkers", 0))

    def kill_worker(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def folder_for(self, name: str, owner: str = DRIVER) -> Path:
        """A folder of a process, which the others can read."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        self.accounts.give(folder, owner)
        return folder

    def _start(self, name: str, main: str, *arguments: str) -> None:
        folder = self.folder_for(name, name)
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments]
        around = {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "128m", "SPARK_LOCAL_IP": HOST, "HOME": str(folder)}
        with (folder / "log.txt").open("ab") as log:
            how = {**self.accounts.of(name), "cwd": folder, "stdout": log, "stderr": log, "env": os.environ | around}
            self._processes[name] = subprocess.Popen(command, start_new_session=True, **how)

    def _failure(self) -> str | None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                return f"{name} has ended:\n{(self.folder / name / 'log.txt').read_text()[-3000:]}"
        return None

    def remove(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class DriverPage:
    """What Spark's page at a port of the driver shows of its executors."""

    def __init__(self, port: int) -> None:
        self._port = port

    def busy_executor(self) -> str | None:
        """The id of an executor that runs a task."""
        apps = read_json(self._port, "api/v1/applications")
        if not apps:
            return None
        for executor in read_json(self._port, f"api/v1/applications/{apps[0]['id']}/executors"):
            if executor["id"] != "driver" and executor["isActive"] and executor["activeTasks"]:
                return str(executor["id"])
        return None


def executors(folder: Path) -> Iterator[tuple[str, str, int]]:
    """The executors of a cluster: worker, id and process id."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            work = (entry / "cwd").resolve()
            if "--executor-id" in words and work.is_relative_to(folder):
                yield work.relative_to(folder).parts[0], words[words.index("--executor-id") + 1], int(entry.name)


def kill_executor(folder: Path, wanted: str) -> None:
    """Kill the process of an executor, as the system does when memory is short."""
    process = next(process for _, id_, process in executors(folder) if id_ == wanted)
    os.kill(process, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], claim: str, failure: Callable[[], str | None] = lambda: None) -> Any:
    """Wait until a condition holds; returns its value. `failure` is the reason why it cannot come true any more."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        reason = failure()
        assert reason is None, f"not true: {claim}\n{reason}"
        assert time.monotonic() < deadline, f"not true in time: {claim}"
        time.sleep(0.02)
    return found


def read_json(port: int, path: str) -> Any:
    """What a page of Spark answers; nothing while it does not."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/{path}", timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return {}
