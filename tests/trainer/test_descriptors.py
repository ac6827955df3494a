"""What is printed where the log cannot take it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llamagym_tui.trainer.pipes import prints_to

full_device = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="Linux has a device that is always full"
)


@full_device
def test_a_print_on_a_full_disk_is_dropped() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    stream = prints_to(descriptor)
    print("a line " * 10_000, file=stream)
    stream.close()
    os.close(descriptor)


@full_device
def test_an_agent_that_prints_on_a_full_disk_goes_on(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from llamagym_tui.trainer.pipes import take_over_wire
wire = take_over_wire(Path({str(tmp_path / "log")!r}))
print("kept")
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
os.dup2(1, 2)
print("dropped")
print("dropped", file=sys.stderr)
wire.events.write(b"alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"alive")
    assert (tmp_path / "log").read_text() == "kept\n"


def test_a_process_ends_while_a_thread_of_a_library_prints(tmp_path: Path) -> None:
    code = f"""
import sys, threading, time
from pathlib import Path
from llamagym_tui.trainer.pipes import take_over_wire
take_over_wire(Path({str(tmp_path / "log")!r}))

def noise():
    while True:
        print("printed")

threading.Thread(target=noise, daemon=True).start()
time.sleep(0.05)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    assert (tmp_path / "log").read_text().startswith("printed\nprinted\n")
