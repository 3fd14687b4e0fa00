"""Nothing is declared in vain: each setting and each option of what can run is read somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import registry
from millpond.options import Option
from millpond.plan.option_owners import GROUP_OPTIONS, JOIN_OPTIONS, TABLE_OPTIONS
from millpond.settings import BEFORE_THE_FILE, FLOW_OPTIONS, SETTINGS

SOURCE = Path(millpond.__file__).parent


def declared() -> dict[str, tuple[Option, ...]]:
    """Every option by its owner; plug-ins that cannot run yet are refused as a whole (MP901)."""
    plugins = [(kind, name) for kind in ("source", "sink", "backend") for name in registry.names(kind)]
    found = {f"{kind} {name}": registry.find(kind, name) for kind, name in plugins}
    return {
        "statement": (*FLOW_OPTIONS, *GROUP_OPTIONS),
        "join": JOIN_OPTIONS,
        "table": TABLE_OPTIONS,
        **{owner: plugin.options for owner, plugin in found.items() if plugin.runnable},
    }


def read_texts() -> set[str]:
    """All texts of the code, but for those that declare an option."""
    return {text for path in SOURCE.rglob("*.py") for text in _texts(ast.parse(path.read_text("utf-8")))}


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Option":
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


# Read under a name that is put together: f"{which}.file" of the Avro schemas.
PUT_TOGETHER = {"avro.schema.file", "key.avro.schema.file"}
CASES = [(owner, option.name) for owner, options in declared().items() for option in options]
APP_ONLY = [option.name for option in SETTINGS if option not in FLOW_OPTIONS]


@pytest.fixture(scope="module")
def texts() -> set[str]:
    return read_texts()


@pytest.mark.parametrize(("owner", "name"), CASES, ids=[f"{owner}: {name}" for owner, name in CASES])
def test_every_option_is_read(owner: str, name: str, texts: set[str]) -> None:
    assert name.removesuffix("*") in texts or name in PUT_TOGETHER


@pytest.mark.parametrize("name", APP_ONLY)
def test_every_setting_is_read(name: str) -> None:
    """A setting is read as one, or stands in for an option."""
    code = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    asked = rf'settings(\.found|\.get|\.starting)?[\[(]"{re.escape(name.removesuffix("*"))}'
    read = re.search(asked, code) or f'setting="{name}"' in code
    assert bool(read) != (name == "debug")


def test_what_is_set_before_the_file_is_declared() -> None:
    assert set(BEFORE_THE_FILE) <= {option.name for option in SETTINGS}
