"""A disk that takes nothing for a while: the run goes on, and its log has everything."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from llamagym_tui.protocol.events import PhaseChanged
from llamagym_tui.runs import event_log
from llamagym_tui.runs.event_log import EventLog
from tests.runs.test_event_log import Clock


class Disk:
    """Has room for so many bytes more, and counts the attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 10**9
        self.attempts = 0
        monkeypatch.setattr(event_log, "os", SimpleNamespace(write=self._write))

    def _write(self, descriptor: int, content: bytearray) -> int:
        self.attempts += 1
        if not self.room:
            raise OSError(28, "No space left on device")
        written = os.write(descriptor, content[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_what_could_not_be_written_is_written_once_there_is_space(
    tmp_path: Path, disk: Disk
) -> None:
    clock, sent = (
        Clock(),
        [PhaseChanged(phase="rolling_out", detail=str(number)) for number in range(100)],
    )
    log = EventLog(tmp_path / "events.jsonl", clock=clock)
    disk.room = 1000  # in the middle of a line
    for event in sent:
        clock.now += 1.0
        log.append(event)
    assert 0 < len(list(event_log.read(tmp_path / "events.jsonl"))) < 20
    disk.room = 10**9
    log.close()
    assert list(event_log.read(tmp_path / "events.jsonl")) == sent


def test_the_end_of_a_run_with_a_full_disk_is_reported_and_gives_the_file_free(
    tmp_path: Path, disk: Disk
) -> None:
    log = EventLog(tmp_path / "events.jsonl", clock=Clock())
    log.append(PhaseChanged(phase="stopped"))
    disk.room = 0
    with pytest.raises(OSError, match="could not be written"):
        log.close()
    log.close()
