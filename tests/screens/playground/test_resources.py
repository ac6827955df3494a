"""What a run uses of the machine, while somebody looks."""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from textual.pilot import Pilot

from llamagym_tui.screens.playground import resources
from llamagym_tui.screens.playground.resources import Gpu, Look, Resources, Used, gpus, look
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import SMALL_AND_SLOWLY_WIDE
from tests.screens.steps import rolling_out, sees, shown, until

BUSY = "import time\nprint(flush=True)\nwhile True: pass"


def test_a_busy_process_is_seen_busy_and_one_that_has_ended_is_not_seen():
    with Popen([sys.executable, "-c", BUSY], stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = look(process.pid)
        deadline = time.monotonic() + 30
        while (now := look(process.pid)).trainer.cpu_s < before.trainer.cpu_s + 0.05:
            assert time.monotonic() < deadline, "it computes"
        assert now.trainer.memory > 1_000_000
        process.kill()
    assert look(process.pid).trainer is None
    assert look(None).app.memory > 1_000_000


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("34, 11980, 81559\\n0, 1, 81559", [Gpu(0.34, 11980, 81559), Gpu(0.0, 1, 81559)]),
        ("[N/A], 1, 2", []),
    ],
)
def test_gpus_are_read_off_their_program(
    told: str, found: list[Gpu], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{told}\\n'")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert gpus() == found


@SMALL_AND_SLOWLY_WIDE
def test_resources_look_like_this(
    snap_compare: Any,
    make_app: MakeApp,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
):
    looks = count(1)

    def seen(pid: int | None) -> Look:
        at = float(next(looks))
        trainer, app = Used(1.5 * at, 512 * 2**20), Used(0.1 * at, 180 * 2**20)
        return Look(at, trainer, app, 3 * 2**29, [Gpu(0.34, 11980, 81559)])

    monkeypatch.setattr(resources, "look", seen)
    monkeypatch.setattr(resources, "LOOK_S", 0.05)
    monkeypatch.setattr(resources, "_cores", lambda: 8)

    async def in_view(pilot: Pilot[None]) -> None:
        await sees(pilot, "rolling out")
        await pilot.press("R")
        await sees(pilot, "trainer 512 MiB, 1.5 of 8 cores")

    app = make_app(fakes.FakeClient([*fakes.opening_events(), *fakes.learning(12)]))
    assert snap_compare(app, terminal_size=size, run_before=in_view)


async def test_resources_stand_below_the_header_until_the_key_is_pressed_again(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    looks = 0

    def seen(pid: int | None) -> Look:
        nonlocal looks
        looks += 1
        trainer, app = Used(1.5 * looks, 512 * 2**20), Used(0.1 * looks, 180 * 2**20)
        return Look(float(looks), trainer, app, 3 * 2**29, [Gpu(0.34, 11980, 81559)])

    monkeypatch.setattr(resources, "look", seen)
    monkeypatch.setattr(resources, "LOOK_S", 0.05)
    client = fakes.FakeClient([*fakes.opening_events(), *fakes.learning(12)])
    async with rolling_out(make_app(client), (120, 34)) as pilot:
        await pilot.press("R")
        await sees(pilot, "trainer 512 MiB, 1.5 of ")
        await sees(pilot, "app 180 MiB, 0.1 cores · 1.5 GiB free · GPU 34%, 11.7 of 79.6 GiB")
        await sees(pilot, "tokens/s")
        await pilot.press("R")
        await until(pilot, lambda: not pilot.app.screen.query(Resources))
        assert "GiB free" not in shown(pilot)
