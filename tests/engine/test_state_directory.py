"""The state directory: one process, one app, one format; anything else is reported and left unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millpond.app.app import App
from millpond.cli.main import main
from millpond.disk import write_sealed
from millpond.engine.state_directory import default_state, open_existing, open_state
from millpond.errors import InputError, StateError


def refused(path: Path, app: str = "app") -> StateError:
    with pytest.raises(StateError) as caught:
        open_state(path, app)
    return caught.value


def test_a_new_directory_is_made_and_found_again(tmp_path: Path) -> None:
    open_state(tmp_path / "deep" / "state", "app").close()
    again = open_state(tmp_path / "deep" / "state", "app")
    assert again.path == tmp_path / "deep" / "state"
    again.close()


def test_the_default_stands_beside_the_sql_file(tmp_path: Path) -> None:
    assert default_state(tmp_path / "trades.sql") == tmp_path / ".millpond" / "trades"


def test_a_directory_held_by_another_process_is_refused_with_its_number(tmp_path: Path) -> None:
    hold = "import sys; from pathlib import Path; from millpond.engine.state_directory import open_state\n"
    hold += "s = open_state(Path(sys.argv[1]), 'app'); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        error = refused(tmp_path / "state")
        assert error.code == "MP801"
        assert f"process {holder.pid}" in str(error)
        holder.communicate("")
    open_state(tmp_path / "state", "app").close()


def test_a_directory_of_another_app_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    open_state(tmp_path, "orders").close()
    before = sorted((f.name, f.read_bytes()) for f in tmp_path.iterdir() if f.name != "lock")
    error = refused(tmp_path, "trades")
    assert error.code == "MP802"
    assert "'orders'" in str(error)
    assert "'trades'" in str(error)
    assert sorted((f.name, f.read_bytes()) for f in tmp_path.iterdir() if f.name != "lock") == before


def test_a_directory_of_another_format_is_refused(tmp_path: Path) -> None:
    open_state(tmp_path, "app").close()
    write_sealed(tmp_path / "app.json", {"format": 99, "app": "app"})
    assert refused(tmp_path).code == "MP803"


@pytest.mark.parametrize("damage", ["", "{", '{"app": "x"}', "[1]"])
def test_a_damaged_identity_is_reported(tmp_path: Path, damage: str) -> None:
    open_state(tmp_path, "app").close()
    (tmp_path / "app.json").write_text(damage)
    assert refused(tmp_path).code == "MP804"


def test_a_missing_identity_is_reported_by_its_name(tmp_path: Path) -> None:
    open_state(tmp_path, "app").close()
    (tmp_path / "app.json").unlink()
    (tmp_path / "store").mkdir()
    error = refused(tmp_path)
    assert (error.code, "app.json is missing" in str(error)) == ("MP804", True)


def test_only_the_owner_can_read_it_and_its_id_stays_the_same(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir(mode=0o755)
    for path in (tmp_path / "made" / "state", tmp_path / "given"):
        first = open_state(path, "app")
        first.close()
        modes = {file.stat().st_mode & 0o077 for file in (path, *path.rglob("*"))}
        assert modes == {0}
        again = open_state(path, "app")
        again.close()
        assert again.id == first.id
    assert open_state(tmp_path / "other", "app").id != first.id


def test_a_directory_of_something_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    error = refused(tmp_path)
    assert error.code == "MP802"
    assert "thesis.doc" in str(error)


def test_a_plain_file_is_no_state_directory(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert refused(tmp_path / "state").code == "MP804"


def test_no_state_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="millpond run") as caught:
        open_existing(tmp_path / "nothing")
    assert caught.value.code == "MP807"


def test_the_environment_and_the_settings_file_name_it_for_run_and_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.sql").write_text("CREATE TABLE t (a INT); INSERT INTO t VALUES (1);")
    (tmp_path / "millpond.toml").write_text('state = "from_file"\n')
    monkeypatch.chdir(tmp_path)
    App(tmp_path / "app.sql").run_once()
    assert (tmp_path / "from_file" / "app.json").is_file()
    assert main(["query", "SHOW TABLES", "--app", "app.sql", "--format", "csv"]) == 0
    monkeypatch.setenv("MILLPOND_STATE", "from_environment")
    App(tmp_path / "app.sql").run_once()
    assert (tmp_path / "from_environment" / "app.json").is_file()
    assert main(["query", "SHOW TABLES", "--format", "csv"]) == 0
    App(tmp_path / "app.sql", state=tmp_path / "given").run_once()
    assert (tmp_path / "given" / "app.json").is_file()
    assert not (tmp_path / ".millpond").exists()
    assert capsys.readouterr().out.count("\nt,ready,1,") == 2


def test_a_file_cannot_set_its_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"MP303 .*1:5.*cannot set 'state'"):
        App(sql="SET state = 'here';")
