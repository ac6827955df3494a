"""Run folders that somebody made to do harm: listed, replayed and resumed without a fall; nothing outside changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from llamagym_tui import model_registry, run_store, user_files
from llamagym_tui.cli.main import app
from llamagym_tui.engine.learning import checkpoint_folders
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol import event_log
from llamagym_tui.protocol.events import PhaseChanged
from llamagym_tui.run_folder import GOOD_MODEL_DIR, MODEL_DIR, START_DIR
from llamagym_tui.run_store import RunStore
from llamagym_tui.screens.past_runs.run_table import COLUMNS, RunRow, played_text, read_row
from llamagym_tui.screens.widgets.numbers import spark
from llamagym_tui.state import run_summary
from llamagym_tui.state.history import History
from llamagym_tui.state.replay import Recording, ReplayPlayer
from tests import fakes
from tests.recorded_run import record

MOST_S, MOST_BYTES = 30.0, 600 * 2**20
FILES = ("config.json", "events.jsonl", "summary.json", "trainer.log", ".lock")
FOLDERS = ("model", "model.old", "good", "good.old", "start")
DRAFTS = ("summary.json.part", "config.json.part", "config.json.partial", "summary.json.partial")
Harm = Callable[[Path, Path], None]
"""What is done to a run folder, and the folder outside that must not change."""


def cleared(path: Path) -> Path:
    user_files.discard(path)
    return path


def in_place(name: str, kind: str) -> Harm:
    def harm(run: Path, outside: Path) -> None:
        path = cleared(run / name)
        match kind:
            case "a link to a file":
                path.symlink_to(outside / "file")
            case "a link to a folder":
                path.symlink_to(outside / "folder")
            case "a link to nothing":
                path.symlink_to(outside / "not there")
            case "a loop of links":
                path.symlink_to(path)
            case "a link to a device":
                path.symlink_to("/dev/zero")
            case "a pipe":
                os.mkfifo(path)
            case "a folder":
                (path / "within").mkdir(parents=True)
            case "a file":
                path.write_bytes(b"no folder")
            case "a terabyte":
                with path.open("wb") as file:
                    file.truncate(2**40)
            case "without rights":
                path.touch()
                path.chmod(0)

    return harm


def content(name: str, data: bytes) -> Harm:
    def harm(run: Path, outside: Path) -> None:
        (run / name).write_bytes(data)

    return harm


def config(**changes: Any) -> Harm:
    def harm(run: Path, outside: Path) -> None:
        kept = msgspec.json.decode((run / "config.json").read_bytes())
        (run / "config.json").write_bytes(msgspec.json.encode({**kept, **changes}))

    return harm


def summary(**changes: Any) -> Harm:
    """A summary that seems to be up to date."""

    def harm(run: Path, outside: Path) -> None:
        size = (run / "events.jsonl").stat().st_size
        (run / "summary.json").write_bytes(
            msgspec.json.encode({"version": run_summary.VERSION, "offset": size, **changes})
        )

    return harm


def counted(*returns: float) -> bytes:
    return event(fakes.counted(list(returns), episodes=len(returns)))


def returns_kept(sums: list[float], **changes: Any) -> Harm:
    squares = [value * value for value in sums]
    return summary(returns={"sums": sums, "group": 1, "last": 1, "squares": squares, **changes})


def event(*events: Any) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in events)


def dated(seconds: int) -> Harm:
    return lambda run, outside: os.utime(run / "config.json", (seconds, seconds))


def links_within_the_model(run: Path, outside: Path) -> None:
    cleared(run / "model").mkdir()
    for name in ("learner.msgpack", "model.safetensors", "config.json", "folder"):
        (run / "model" / name).symlink_to(outside / ("folder" if name == "folder" else "file"))


def pipes_within_the_model(run: Path, outside: Path) -> None:
    cleared(run / "model").mkdir()
    for name in ("learner.msgpack", "model.safetensors", "config.json", "tokenizer.json"):
        os.mkfifo(run / "model" / name)


DEEP = b"[" * 100_000 + b"]" * 100_000
KINDS = (
    "a link to a file",
    "a link to a folder",
    "a link to nothing",
    "a loop of links",
    "a link to a device",
    "a pipe",
)
HARMS: dict[str, Harm] = {
    **{f"{kind} as {name}": in_place(name, kind) for name in (*FILES, *FOLDERS) for kind in KINDS},
    **{f"{kind} as {name}": in_place(name, kind) for name in DRAFTS for kind in KINDS[:2]},
    **{
        f"{kind} as {name}": in_place(name, kind)
        for name in FILES
        for kind in ("a folder", "a terabyte", "without rights")
    },
    **{f"a file as {name}": in_place(name, "a file") for name in FOLDERS},
    "a deep config": content("config.json", DEEP),
    "a config that is a deep object": content("config.json", b'{"agent":' * 100_000),
    "a config of another type": content("config.json", b"[]"),
    "an empty config": content("config.json", b""),
    "a config that is no text": content("config.json", b'{"agent": "\xff"}'),
    "a config whose folder is elsewhere": lambda run, outside: config(
        run_dir=str(outside / "folder")
    )(run, outside),
    "a config with escapes": config(agent="\x1b]52;c;aGk=\x07\n[bold]", model="\x9b2J\r\n"),
    "a config with a way out as agent": config(agent="../../outside/file", model="../../outside"),
    "a config with an endless agent": config(agent="x" * 1_000_000),
    "a config with a null byte": config(agent="a\0b", model="/a\0b"),
    "a config of the year 10000": dated(2**38),
    "a config from before all times": dated(-(2**36)),
    "a deep event": content("events.jsonl", DEEP + b"\n"),
    "an event of 20 MB": content(
        "events.jsonl", b'{"type":"PhaseChanged","phase":"' + b"x" * 20_000_000 + b'"}\n'
    ),
    "a line without an end": content("events.jsonl", b"x" * 40_000_000),
    "an event that is no text": content("events.jsonl", b"\xff\xfe\n"),
    "only NUL as events": content("events.jsonl", b"\0" * 100_000 + b"\n"),
    "an event of no kind": content("events.jsonl", b'{"type":"Rm","path":"/"}\n'),
    "times that go backwards": content(
        "events.jsonl",
        event(*(PhaseChanged(phase="loading", at_s=time) for time in (1e308, -1e308, 0))),
    ),
    "returns beyond all sums": content("events.jsonl", counted(1e308, 1e308, -1e308)),
    "returns of both signs": content("events.jsonl", counted(1.7e308, -1.7e308)),
    "returns that can just be added": content(
        "events.jsonl", counted(*[1e150] * 500, *[-1e150] * 500)
    ),
    "an episode of 4,000 digits": content(
        "events.jsonl", counted(1.0).replace(b'"episodes":1', b'"episodes":-' + b"1" * 4000)
    ),
    "a deep summary": content("summary.json", DEEP),
    "a summary of wrong types": summary(returns=[1, 2], baselines=7),
    "a summary before the file": summary(offset=-1),
    "a summary beyond the file": summary(offset=2**70),
    "a summary with groups of none": returns_kept([1.0, 2.0], group=0),
    "a summary without squares": returns_kept([1.0, 2.0], squares=[]),
    "a summary of endless figures": summary(
        returns={"sums": [1e308, -1e308] * 4, "group": 1, "last": 1, "squares": [1e308] * 8},
        played_s=1e308,
        episodes=10**18,
    ),
    "a summary of a million groups": returns_kept([1.0] * 10**6),
    "links within the model": links_within_the_model,
    "pipes within the model": pipes_within_the_model,
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_bytes(b"theirs\nwithout an end")
    (outside / "folder" / "learner.msgpack").write_bytes(b"theirs")
    (outside / "folder" / "deeper").mkdir()
    return outside


def checksum(folder: Path) -> str:
    """Of all names, kinds, modes, times and contents."""
    found = []
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found.append((str(path), stat.st_mode, stat.st_mtime_ns, stat.st_nlink, data))
    return hashlib.sha256(repr(found).encode()).hexdigest()


def looked_at(folder: Path) -> None:
    """Everything that the list of runs, a replay, and a run that is resumed read and write, without a model."""
    for info in run_store.list_runs():
        row = read_row(RunRow(info=info))
        for column in COLUMNS:
            column.text(row), column.order and column.order(row)
        if row.summary is not None:
            played_text(row.summary)
            spark([point.mean_return for point in row.curve], 40)
    try:
        recording = Recording(folder)
        History(folder, recording.config).read_on()
        while not recording.complete:
            recording.read_on()
        ReplayPlayer(recording).jump(recording.duration_s)
        run_store.last_settings(folder)
    except LlamaGymError:
        pass
    model_registry.find(str(folder))
    model_registry.find(str(folder / "model"))


def resumed(folder: Path) -> None:
    """What the trainer does to a run folder that is not its weights."""
    with contextlib.suppress(OSError):
        user_files.growing_file(folder / "trainer.log").close()
    try:
        settings = replace(run_store.read_config(folder), run_dir=str(folder), resume=True)
        store = RunStore.create(settings)
    except LlamaGymError:
        return
    with contextlib.suppress(LlamaGymError):
        store.open_log().close()
    store.append(PhaseChanged(phase="loading"))
    store.close()
    assert store.run_dir == folder
    try:
        checkpoint_folders.clean(folder)
        for name in (
            MODEL_DIR,
            MODEL_DIR,
            START_DIR,
        ):
            with checkpoint_folders.written(folder, name) as draft:
                (draft / "learner.msgpack").write_bytes(b"ours")
            checkpoint_folders.keep(folder, GOOD_MODEL_DIR)
    except OSError:
        pass


QUICK = ("a link to a folder as", "a pipe as", "a terabyte as")
"""Of what is put in each place; the other kinds are slow together."""


def is_slow(name: str) -> bool:
    return " as " in name and not name.startswith(QUICK)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if is_slow(name) else []) for name in HARMS],
)
def test_a_foreign_run_folder_does_no_harm(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    good = record(tmp_path / "runs" / "good", fakes.opening_events(), checkpoint=True)
    bad = record(tmp_path / "runs" / "bad\x1b[2J\n name", fakes.opening_events(), checkpoint=True)
    HARMS[name](bad, outside)
    before, began = checksum(outside), time.monotonic()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):  # a kept summary is read the second time
        looked_at(bad)
        assert good in [info.run_dir for info in run_store.list_runs()]
        assert CliRunner().invoke(app, ["runs"]).exit_code == 0
    resumed(bad)
    looked_at(bad)
    assert checksum(outside) == before
    assert time.monotonic() - began < MOST_S
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < MOST_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_folder_among_the_runs_is_left_out(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    good = record(tmp_path / "runs" / "good", fakes.opening_events())
    in_place("bad", kind)(tmp_path / "runs", outside)
    before = checksum(outside)
    assert [info.run_dir for info in run_store.list_runs()] == [good]
    assert CliRunner().invoke(app, ["runs"]).exit_code == 0
    assert checksum(outside) == before


def test_a_folder_of_runs_that_its_owner_keeps_elsewhere_works_as_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "home"))
    (tmp_path / "disk" / "runs").mkdir(parents=True)
    (tmp_path / "home").symlink_to("disk")
    run = record(tmp_path / "home" / "runs" / "one", fakes.opening_events(), checkpoint=True)
    (tmp_path / "home" / "runs" / "two").symlink_to(run)
    assert {info.run_dir.name for info in run_store.list_runs()} == {"one", "two"}
    looked_at(run)
    resumed(tmp_path / "home" / "runs" / "two")
    assert (tmp_path / "disk" / "runs" / "one" / "good" / "learner.msgpack").read_bytes() == b"ours"
    assert list(event_log.read(run / "events.jsonl"))[-1] == PhaseChanged(phase="loading")
