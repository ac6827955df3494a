"""The app of a browser session ends with its input, for then its visitor or its server is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from llamagym_tui import user_files
from tests import fakes
from tests.recorded_run import record


def test_an_app_whose_server_is_gone_ends_in_order(tmp_path: Path):
    run = record(tmp_path / "run", fakes.demo_run(batches=3))
    changes = {
        user_files.BROWSER: "watch",
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
    }
    changes |= {f"LLAMAGYM_TUI_{name}": str(tmp_path / "user") for name in ("DATA", "CONFIG")}
    words = [sys.executable, "-m", "llamagym_tui", "replay", str(run)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=os.environ | changes, stdin=pipe, stdout=pipe, stderr=pipe
    ) as app:
        try:
            assert app.stdout is not None
            assert app.stdin is not None
            while b"REPLAY" not in app.stdout.readline():
                pass
            app.stdin.close()
            app.stdin = None
            _, errors = app.communicate(timeout=30)
            assert (app.returncode, errors) == (0, b"")
        finally:
            app.kill()
    assert not (tmp_path / "user").exists()
