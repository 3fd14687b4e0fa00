"""What import-linter cannot see: which modules an import really brings in."""

import ast
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from millpond import registry

# Not pandas: where it is installed pyarrow itself loads it, at the first value that it is given. That our own modules
# do not is import-linter's to see.
SOURCE = Path(__file__).parents[1] / "src" / "millpond"
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


def imports_of(file: Path, modules: Collection[str]) -> set[str]:
    """The modules that a module imports anywhere: at its top, inside functions, and for type checking only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = (f"{node.module}.{name.name}" for name in node.names)
            found |= {name if name in modules else node.module for name in named}
    return found & set(modules)


def cyclic_packages() -> list[set[str]]:
    """Each group of modules that can reach one another by imports, as the packages in which they are."""
    names = {module_name(file): file for file in SOURCE.rglob("*.py")}
    reached = {name: imports_of(file, names) - {name} for name, file in names.items()}
    changed = True
    while changed:
        changed = False
        for found in reached.values():
            more = set().union(*(reached[other] for other in found)) - found
            found |= more
            changed = changed or bool(more)
    groups = {frozenset(o for o in found if name in reached[o]) for name, found in reached.items() if name in found}
    return [{".".join(name.split(".")[1:2]) for name in group} for group in groups]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_only_types_of_one_package_refer_to_each_other() -> None:
    """No module imports itself by way of others when it is loaded, which import-linter verifies. Annotations may refer
    to each other, such as a store and its transactions, but within a package; a backend's contract names its rows."""
    allowed = [{"contracts"}, {"contracts", "tables"}, {"engine"}, {"plan"}, {"tables"}]
    assert sorted(map(sorted, cyclic_packages())) == sorted(map(sorted, allowed))


def test_the_light_packages_load_no_spark() -> None:
    assert heavy_modules_after(WALK.format(packages=LIGHT_PACKAGES)) == []
