"""The wheel: built from the source tree and installed in a new environment, it runs the first app of README."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from millpond.testing.documents import read_sections

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 600


def call(*words: object, folder: Path) -> str:
    """What a command prints, without the source tree on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def wheel(folder: Path) -> Path:
    """Built from a copy, so that nothing is left in the source tree."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "examples"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ("-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "--no-build-isolation", "-w", folder)
    call(sys.executable, *build, source, folder=folder)
    return next(folder.glob("millpond-*.whl"))


def first_app(folder: Path) -> None:
    blocks = [block for section in read_sections(ROOT / "README.md") for block in section.blocks]
    for block in blocks:
        if block.title:
            (folder / block.title).write_text(block.body, "utf-8")


def run_first_app(bin_folder: Path, folder: Path) -> None:
    first_app(folder)
    call(bin_folder / "millpond", "run", "spending.sql", "--once", folder=folder)
    asked = ("query", "SELECT * FROM by_tier ORDER BY tier", "--app", "spending.sql", "--format", "csv")
    assert call(bin_folder / "millpond", *asked, folder=folder) == "tier,total\nBASIC,5.00\nGOLD,20.00\n"


@pytest.mark.process
def test_the_wheel_runs_in_a_new_environment(tmp_path: Path) -> None:
    """With the dependencies of this environment, so that nothing is downloaded; `make soak` downloads them."""
    made, environment = wheel(tmp_path), tmp_path / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", environment, folder=tmp_path)
    install = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment / "bin/python")
    if os.environ.get("MILLPOND_SOAK"):
        call(*install, "install", made, folder=tmp_path)
    else:
        call(*install, "install", "--no-deps", "--no-index", made, folder=tmp_path)
        packages = sysconfig.get_paths(vars={"base": str(environment), "platbase": str(environment)})["purelib"]
        (Path(packages) / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    where = call(environment / "bin/python", "-c", "import millpond; print(millpond.__file__)", folder=tmp_path)
    assert where.startswith(str(environment))
    run_first_app(environment / "bin", tmp_path)
    call(environment / "bin/millpond", "init", "shop", folder=tmp_path)
    call(environment / "bin/millpond", "test", "tests.md", "--engine", "arrow", folder=tmp_path / "shop")
    page = "from millpond.serve.page import _files; print(sorted(_files()))"
    assert "index.html" in call(environment / "bin/python", "-c", page, folder=tmp_path)
