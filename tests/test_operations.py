"""The files of docs/operations/: they can be read, and name settings, paths and options that exist."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import yaml

from millpond.cli import run
from millpond.cli.command import Parser
from millpond.serve.guard import OPEN
from millpond.settings import SETTINGS, environment_name

FOLDER = Path(__file__).parents[1] / "docs" / "operations"
VARIABLES = {environment_name(option.name) for option in SETTINGS}


def text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def test_every_variable_is_that_of_a_setting() -> None:
    files = ("Dockerfile", "compose.yml", "millpond.service", "kubernetes.yml")
    named = {found for name in files for found in re.findall(r"\bMILLPOND_\w+", text(name))}
    assert named <= VARIABLES


def test_the_commands_are_those_of_millpond() -> None:
    unit = configparser.ConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(text("millpond.service"))
    program, command, *words = unit["Service"]["ExecStart"].split()
    assert (program.rpartition("/")[2], command) == ("millpond", "run")
    assert Parser(run.COMMAND).read(words).log_format == "json"
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", text("Dockerfile"), re.M)
    assert entry is not None
    assert Parser(run.COMMAND).read(yaml.safe_load(entry[1])[2:]).file == "app.sql"


def test_the_probes_ask_for_paths_that_need_no_token() -> None:
    parts: list[Any] = list(yaml.safe_load_all(text("kubernetes.yml")))
    stateful = next(part for part in parts if part["kind"] == "StatefulSet")
    assert stateful["spec"]["replicas"] == 1
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    probes = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert set(probes) <= set(OPEN)
    assert set(yaml.safe_load(text("compose.yml"))["services"]) == {"app", "kafka", "postgres"}
