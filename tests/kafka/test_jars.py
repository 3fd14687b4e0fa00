"""The connector's jars: missing ones are reported with the command that installs them, and so are failures of Maven."""

from pathlib import Path
from typing import Any

import pytest

from millpond.engine.spark.java import connector_jars, install_connector
from millpond.errors import OptionError, SetupError
from millpond.kafka.admin import require_jars


@pytest.mark.spark
def test_a_session_without_the_connector_says_what_to_run(spark: Any) -> None:
    thread = spark._jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    # Java's own classes only: what a session sees that was started without jars.
    thread.setContextClassLoader(spark._jvm.java.lang.ClassLoader.getPlatformClassLoader())
    try:
        with pytest.raises(SetupError) as caught:
            require_jars(spark)
    finally:
        thread.setContextClassLoader(loader)
    assert (caught.value.code, caught.value.hint) == ("MP903", "Run: millpond doctor --install kafka")


def test_without_maven_the_command_that_it_would_run_is_reported(tmp_path: Path) -> None:
    around = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(SetupError) as caught:
        install_connector("kafka", around)
    assert caught.value.code == "MP903"
    assert f"-DoutputDirectory={tmp_path}/.cache/millpond/jars" in caught.value.hint
    assert connector_jars("kafka", around) == []


def test_what_maven_says_is_reported(tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] Could not transfer artifact'\nexit 1\n")
    maven.chmod(0o755)
    with pytest.raises(SetupError, match="Could not transfer artifact"):
        install_connector("kafka", {"PATH": f"{tmp_path}:/bin", "MILLPOND_JARS": str(tmp_path / "jars")})


def test_there_is_nothing_to_install_for_another_name() -> None:
    with pytest.raises(OptionError, match="nothing to install for 'kafkaa'"):
        install_connector("kafkaa", {})
