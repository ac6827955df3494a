"""What `doctor` finds: a line each, and an exit code that goes by what is broken."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from llamagym_tui.cli import doctor

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"LLAMAGYM_TUI_{name}", str(tmp_path / name))

    def lines() -> tuple[int, dict[str, str]]:
        code = doctor.report()
        return code, dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())

    return lines


def without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_trial", dict)


@pytest.mark.slow  # loads the model
def test_a_machine_on_which_all_is_well_has_a_line_for_each_thing_and_nothing_is_left(
    lines, tmp_path: Path
):
    code, found = lines()
    assert code == 0
    assert found["torch"] == importlib.metadata.version("torch")
    assert re.fullmatch(r"[1-9]\d* for the bundled model", found["threads"])
    assert re.fullmatch(r"\d+\.\d GiB free", found["memory"])
    assert found["data"].startswith(f"{tmp_path / 'DATA'}, ")
    assert found["terminal"].startswith("none")
    assert len(found) < 26  # a screen
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_problem(
    lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    without_a_run(monkeypatch)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "file" / "data"))
    code, found = lines()
    assert (code, found["data"]) == (
        1,
        f"PROBLEM: {tmp_path / 'file' / 'data'} cannot be written: Not a directory",
    )


def test_a_library_that_is_absent_or_does_not_load_is_a_problem(
    lines, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.metadata.distributions", list)
    monkeypatch.setitem(sys.modules, "llamagym_tui.trainer.builders", None)
    code, found = lines()
    assert (code, found["peft"]) == (1, "PROBLEM: not installed")
    assert found["a"].startswith("run         PROBLEM: ModuleNotFoundError: ")


def test_every_extra_for_users_has_its_module_and_a_missing_one_its_command(
    lines, monkeypatch: pytest.MonkeyPatch
):
    without_a_run(monkeypatch)
    monkeypatch.setattr("importlib.util.find_spec", lambda module: module == "minigrid" or None)
    code, found = lines()
    assert code == 0
    assert found["[minigrid]"].startswith("installed: ")
    assert found["[textworld]"].startswith(
        "not installed (pip install 'llamagym-tui[textworld]'): "
    )
    extras = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    assert {f"[{extra}]" for extra in extras} - {"[dev]", "[docs]"} == {
        name for name in found if name[0] == "["
    }
    modules = {
        extra: [wanted.replace("-", "_") for wanted in extras[extra]] for extra in doctor.EXTRAS
    }
    assert all(
        any(doctor.EXTRAS[extra].module in wanted for wanted in modules[extra])
        for extra in doctor.EXTRAS
    )
