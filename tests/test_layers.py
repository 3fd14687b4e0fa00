"""What import-linter cannot see: which modules an import really brings in."""

import json
import subprocess
import sys

import pytest

from millpond import registry

# Not pandas: where it is installed pyarrow itself loads it, at the first value that it is given. That our own modules
# do not is import-linter's to see.
HEAVY = ("pyspark", "py4j")
LIGHT_PACKAGES = ("millpond", "millpond.plan", "millpond.expressions", "millpond.sql", "millpond.contracts")

# Imports a package and all that is in it; of millpond itself only the top.
WALK = """
import importlib, pkgutil
for name in {packages!r}:
    package = importlib.import_module(name)
    if name != "millpond":
        for found in pkgutil.walk_packages(package.__path__, name + "."):
            importlib.import_module(found.name)
"""


def heavy_modules_after(statement: str) -> list[str]:
    """The heavy packages that a fresh Python has loaded after a statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_the_guard_sees_a_heavy_import() -> None:
    assert heavy_modules_after("import pyspark") == ["pyspark", "py4j"]


@pytest.mark.parametrize("kind", ["source", "sink", "backend"])
def test_finding_every_plug_in_loads_no_spark(kind: str) -> None:
    finds = "; ".join(f"registry.find({kind!r}, {name!r})" for name in registry.names(kind))
    assert heavy_modules_after(f"from millpond import registry; {finds}") == []


def test_the_light_packages_load_no_spark() -> None:
    assert heavy_modules_after(WALK.format(packages=LIGHT_PACKAGES)) == []
