"""What the tests of the command line share."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from tests.cli.fake_app import Script, app_class


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The commands find an app without Spark in place of the real one."""
    script = Script()
    module = ModuleType("millpond.app.app")
    module.App = app_class(script)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "millpond.app.app", module)
    return script
