"""An app in a pseudo-terminal of which the test reads every byte, and whose settings it compares."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
PROGRAM = """
import sys
from pathlib import Path
from llamagym_tui.app import app as module
from llamagym_tui.app.trainer_client import TrainerClient
from llamagym_tui.cli.command_line import end_failed
from tests import fakes
folder, script = Path(sys.argv[1]), sys.argv[2]
client = TrainerClient((sys.executable, "-m", "tests.fakes", script))
app = module.LlamaGymApp(fakes.config(folder / "run"), client_factory=lambda: client)
{fault}
try:
    code = module.run_app(app)
except Exception as error:
    end_failed(error)
finally:
    (folder / "trainer's exit code").write_text(str(client.exit_code))
sys.exit(code)
"""
MODES = ("?1049", "?1000", "?1003", "?1015", "?1006", "?1016", "?2004", "?2048", "?1004", "?25")


class TerminalApp:
    """The app with a scripted trainer, in a terminal of its own."""

    def __init__(
        self,
        folder: Path,
        script: str = "quiet",
        *,
        fault: str = "",
        command: Sequence[str] = (),
    ) -> None:
        """Start it.

        Args:
            folder: of its data and its run.
            script: of the trainer, as in `tests.fakes`.
            fault: Python that is run before the app.
            command: started in place of the app.
        """
        self.folder, self.output = folder, b""
        self.ours, its = pty.openpty()
        termios.tcsetwinsize(its, (24, 80))
        self.settings = termios.tcgetattr(its)
        program = [sys.executable, "-c", PROGRAM.format(fault=fault), str(folder), script]
        self.process = subprocess.Popen(
            command or program,
            stdin=its,
            stdout=its,
            stderr=its,
            env={
                **os.environ,
                "TERM": "xterm-256color",
                "LLAMAGYM_TUI_DATA": str(folder),
                "LLAMAGYM_TUI_CONFIG": str(folder / "config"),
            },
            cwd=ROOT,
            start_new_session=True,
        )
        self._its = its

    def read(self, seconds: float = 0.05) -> bytes:
        """What came within a time; all of it is in `output`."""
        if select.select([self.ours], [], [], seconds)[0]:
            try:
                self.output += os.read(self.ours, 65536)
            except OSError:
                time.sleep(seconds)
        return self.output

    def sees(self, text: str, since: int = 0) -> None:
        """Wait until a text came."""
        end = time.monotonic() + PATIENCE_S
        while text.encode() not in self.read()[since:]:
            assert time.monotonic() < end, f"never came: {text}\n{self.text()}"

    def waits_for(self, name: str) -> None:
        """Wait until a file in its folder has a content."""
        end = time.monotonic() + PATIENCE_S
        while not ((self.folder / name).exists() and (self.folder / name).read_text()):
            self.read()
            assert time.monotonic() < end, f"never made: {name}\n{self.text()}"

    def types(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def ends(self) -> int:
        """Its exit code; everything that it printed is in `output`."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < end, f"it never ended\n{self.text()}"
        while select.select([self.ours], [], [], 0.1)[0] and len(self.output) != len(self.read()):
            pass
        return self.process.returncode

    def text(self) -> str:
        """What came, without control sequences."""
        return re.sub(r"\x1b(\[[^a-zA-Z]*[a-zA-Z]|[^\[])", "", self.output.decode(errors="replace"))

    def parting(self) -> str:
        """What was printed once the alternate screen was left."""
        return self.output.rpartition(b"\x1b[?1049l")[2].decode(errors="replace")

    def modes_left_on(self) -> list[str]:
        """Modes that are not as before, and ``termios`` if its settings are not."""
        left = []
        for mode in MODES:
            found = re.findall(rb"\x1b\[" + re.escape(mode.encode()) + rb"([hl])", self.output)
            if found and found[-1] != (b"h" if mode == "?25" else b"l"):
                left.append(mode)
        return left + (["termios"] if termios.tcgetattr(self._its) != self.settings else [])

    @property
    def trainers_exit_code(self) -> str:
        return (self.folder / "trainer's exit code").read_text()

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self.ours)
        os.close(self._its)
        self.ours = self._its = -1

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> TerminalApp:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.ours >= 0:
            self.hang_up()
