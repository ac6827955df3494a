"""Before a model is downloaded, a person is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.runs import model_registry
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import sees, until

SIZE = (120, 34)
MODEL = "maker/Small-Instruct"


@pytest.fixture(autouse=True)
def missing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the models that are not on this machine."""
    names = {MODEL}
    monkeypatch.setattr(
        model_registry,
        "download_of",
        lambda name: "about 269 MB from the hub" if name in names else None,
    )
    monkeypatch.setattr(model_registry, "require_model", lambda name: None)  # the hub has them
    return names


async def test_no_trainer_is_started_until_the_download_is_agreed_to(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    app = make_app(client, model=MODEL)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "maker/Small-Instruct is not on this machine.")
        await sees(pilot, "about 269 MB from the hub")
        await pilot.pause()
        assert client.started is None
        await pilot.press("y")
        await sees(pilot, "episode ")


async def test_whoever_does_not_want_it_is_back_in_the_shell_without_a_run(
    make_app: MakeApp, tmp_path: Path
):
    client = fakes.FakeClient(fakes.opening_events())
    reserved = tmp_path / "reserved"
    reserved.mkdir()
    app = LlamaGymApp(fakes.config(reserved, model=MODEL), client_factory=lambda: client)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "is not on this machine.")
        await pilot.press("n")
        await until(pilot, lambda: not app.is_running)
    assert client.started is None
    assert app.return_code == 0
    assert not reserved.exists()


async def test_a_model_that_is_here_needs_no_question(make_app: MakeApp, missing: set[str]):
    missing.clear()
    client = fakes.FakeClient(fakes.opening_events())
    app = make_app(client, model=MODEL)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "episode ")
    assert client.started is not None
    assert client.started.model == MODEL
