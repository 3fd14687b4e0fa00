"""Java and the jars of connectors: where they are, which a plan needs, and how to download them with Maven."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import OptionError, SetupError
from millpond.redact import redact

if TYPE_CHECKING:
    from millpond.plan.model import Plan


JAVA_MIN = 17
ASK_TIMEOUT_S = 20.0


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """The program that Spark starts: that of JAVA_HOME, else the one on the PATH; None if there is none."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found and os.access(found, os.X_OK) else None


def java_version(java: Path) -> int | None:
    """The major version from the JDK's release file, else from `java -version`; None if neither has one."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        for line in release.read_text("utf-8", "replace").splitlines():
            if line.startswith("JAVA_VERSION="):
                return _major(line.split("=", 1)[1].strip('"'))
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stderr.split('"')
    return _major(words[1]) if len(words) > 1 else None


def _major(version: str) -> int | None:
    """17 from `17.0.15`, 8 from `1.8.0_392`."""
    parts = version.split(".")
    number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
    return int(number) if number.isdigit() else None


FOLDER_VARIABLE = "MILLPOND_JARS"
# Connector -> the jar that shows that it is installed.
CONNECTORS = {"kafka": "spark-sql-kafka-0-10_2.13-*.jar"}
MAVEN_S = 600
# The argument of `doctor --install`, beside the connectors, for the archive of the classes that Java loads for Spark.
CLASSES = "classes"


def jars_folder(environment: Mapping[str, str]) -> Path:
    """The folder of the jars."""
    named = environment.get(FOLDER_VARIABLE)
    home = Path(environment.get("HOME", "~")).expanduser()
    return Path(named).expanduser() if named else home / ".cache" / "millpond" / "jars"


def spark_jars() -> Path:
    """The folder of Spark's own jars: that of SPARK_HOME, or else of pyspark."""
    home = os.environ.get("SPARK_HOME")
    spec = None if home else find_spec("pyspark")
    return Path(home or (spec and spec.origin and Path(spec.origin).parent) or "") / "jars"


def connector_jars(name: str, environment: Mapping[str, str]) -> list[Path]:
    """The jars of a connector; empty if it is not installed."""
    folder = jars_folder(environment)
    return sorted(folder.glob("*.jar")) if any(folder.glob(CONNECTORS[name])) else []


def connectors_of(plan: Plan) -> list[str]:
    """The connectors that a plan uses, because Spark reads or writes for it."""
    used = {s.type for s in plan.sources} | {s.type for s in plan.sinks}
    return [name for name in CONNECTORS if name in used]


def session_conf(plan: Plan) -> dict[str, str]:
    """The settings of a session for the connectors that a plan uses."""
    jars = [jar for name in connectors_of(plan) for jar in connector_jars(name, os.environ)]
    return {"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}


def install_connector(name: str, environment: Mapping[str, str]) -> list[Path]:
    """Download a connector's jars with Maven; MP903 if that fails."""
    if name not in CONNECTORS:
        raise OptionError(
            "MP310",
            f"There is nothing to install for '{name}'.",
            hint=f"Use one of: {', '.join((*CONNECTORS, CLASSES))}.",
        )
    maven = shutil.which("mvn", path=environment.get("PATH"))
    folder = jars_folder(environment)
    with as_file(files("millpond") / "jars" / "pom.xml") as pom:
        arguments = ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        if maven is None:
            hint = f"Install it (apt-get install -y maven) and run again; it would run: mvn {' '.join(arguments)}"
            raise SetupError("MP903", "Downloading jars requires Maven, which was not found.", hint=hint)
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([maven, *arguments], capture_output=True, text=True, timeout=MAVEN_S, check=False)
    jars = connector_jars(name, environment)
    if done.returncode or not jars:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line] or [
            "it printed no error"
        ]
        hint = f"See that Maven reaches its repository: mvn {' '.join(arguments[2:])}"
        raise SetupError("MP903", f"Maven did not download the jars: {redact(errors[0])[:300]}", hint=hint)
    return jars
