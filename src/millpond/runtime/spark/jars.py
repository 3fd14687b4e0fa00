"""The jars of connectors: where they are kept, which a plan needs, and how Maven brings them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import OptionError, SetupError
from millpond.redact import redact

if TYPE_CHECKING:
    from millpond.plan.model import Plan

FOLDER_VARIABLE = "MILLPOND_JARS"
# Connector -> the jar by which its presence is told.
CONNECTORS = {"kafka": "spark-sql-kafka-0-10_2.13-*.jar"}
MAVEN_S = 600


def jars_folder(environment: Mapping[str, str]) -> Path:
    """Where jars are kept."""
    named = environment.get(FOLDER_VARIABLE)
    home = Path(environment.get("HOME", "~")).expanduser()
    return Path(named).expanduser() if named else home / ".cache" / "millpond" / "jars"


def connector_jars(name: str, environment: Mapping[str, str]) -> list[Path]:
    """The jars of a connector; none when it was not installed."""
    folder = jars_folder(environment)
    return sorted(folder.glob("*.jar")) if any(folder.glob(CONNECTORS[name])) else []


def session_conf(plan: Plan) -> dict[str, str]:
    """What a session needs to be told for the connectors that a plan uses."""
    used = {s.type for s in plan.sources} | {s.type for s in plan.sinks}
    jars = [jar for name in CONNECTORS if name in used for jar in connector_jars(name, os.environ)]
    return {"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}


def install_connector(name: str, environment: Mapping[str, str]) -> list[Path]:
    """Fetch a connector's jars with Maven; MP903 when that cannot be."""
    if name not in CONNECTORS:
        raise OptionError(
            "MP310", f"There is nothing to install for '{name}'.", hint=f"There is: {', '.join(CONNECTORS)}."
        )
    maven = shutil.which("mvn", path=environment.get("PATH"))
    folder = jars_folder(environment)
    with as_file(files("millpond") / "jars" / "pom.xml") as pom:
        arguments = ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        if maven is None:
            hint = f"Install it (apt-get install -y maven) and run again; it would run: mvn {' '.join(arguments)}"
            raise SetupError("MP903", "Fetching jars needs Maven, and there is none.", hint=hint)
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([maven, *arguments], capture_output=True, text=True, timeout=MAVEN_S, check=False)
    jars = connector_jars(name, environment)
    if done.returncode or not jars:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line] or ["it said nothing"]
        hint = f"See that Maven reaches its repository: mvn {' '.join(arguments[2:])}"
        raise SetupError("MP903", f"Maven did not bring the jars: {redact(said[0])[:300]}", hint=hint)
    return jars
