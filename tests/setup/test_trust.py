"""Code that a run folder names is executed after a question only; what a person typed here, without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.errors import UntrustedAgent, UsageError
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.setup.catalog import code_of
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.setup.trust import remember_typed, trust
from tests import fakes
from tests.recorded_run import record

EVIL = """
from pathlib import Path
from llamagym_tui.agents.blackjack import BlackjackAgent

(Path(__file__).parent / "executed").touch()

class Evil(BlackjackAgent):
    pass
"""
EVENTS: list[AnyEvent] = fakes.opening_events()


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "evil.py").write_text(EVIL, encoding="utf-8")
    return folder / "evil.py"


@pytest.fixture
def foreign(evil: Path) -> Path:
    """A run folder as a stranger sends it."""
    return record(evil.parent / "run", EVENTS, checkpoint=True, agent=str(evil))


def resumed(run_dir: Path, **more: bool):
    return run_config(None, {"run_dir": str(run_dir), "resume": True}, **more)


def was_executed(evil: Path) -> bool:
    return (evil.parent / "executed").exists()


def test_a_foreign_agent_is_not_executed_by_a_resume(foreign: Path, evil: Path) -> None:
    with pytest.raises(UntrustedAgent, match=r"evil\.py.*SHA-256 [0-9a-f]{16}.*--trust-agent"):
        resumed(foreign)
    assert not was_executed(evil)


def test_an_agreement_holds_for_one_content(foreign: Path, evil: Path) -> None:
    assert resumed(foreign, trust_agent=True).agent == str(evil)
    assert resumed(foreign).agent == str(evil)
    evil.write_text(EVIL + "# edited\n", encoding="utf-8")
    with pytest.raises(UntrustedAgent):
        resumed(foreign)


def test_the_same_content_elsewhere_is_another_agreement(
    foreign: Path, evil: Path, tmp_path: Path
) -> None:
    """It may import other neighbours there."""
    resumed(foreign, trust_agent=True)
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "evil.py"
    copy.write_text(EVIL, encoding="utf-8")
    with pytest.raises(UntrustedAgent):
        resumed(record(tmp_path / "other" / "run", EVENTS, checkpoint=True, agent=str(copy)))


def test_a_typed_file_is_trusted_edited_or_not(foreign: Path, evil: Path) -> None:
    run_config(str(evil))
    evil.write_text(EVIL + "# edited\n", encoding="utf-8")
    assert resumed(foreign).agent == str(evil)


def test_an_agreement_that_cannot_be_kept_is_refused(foreign: Path, data: Path) -> None:
    data.write_text("a file", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be kept"):
        resumed(foreign, trust_agent=True)


def test_a_damaged_list_of_agreements_trusts_nothing(foreign: Path, data: Path) -> None:
    data.mkdir()
    (data / "trusted_agents.json").write_bytes(b'{"typed": 3}')
    with pytest.raises(UntrustedAgent):
        resumed(foreign)


def test_a_module_before_a_gymnasium_id_is_code_too(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", EVENTS, checkpoint=True, agent="os:CartPole-v1")
    with pytest.raises(UntrustedAgent, match="os"):
        resumed(folder)


@pytest.mark.parametrize("spec", ["blackjack", "frozen-lake", "CartPole-v1"])
def test_what_ships_or_is_installed_asks_nothing(spec: str, tmp_path: Path, data: Path) -> None:
    assert code_of(spec) is None
    remember_typed(spec)
    assert not list(data.rglob("*")), "there is nothing to agree to"
    assert resumed(record(tmp_path / "run", EVENTS, checkpoint=True, agent=spec)).agent == spec


def test_a_recorded_run_executes_no_code_even_if_it_is_trusted(foreign: Path, evil: Path) -> None:
    try:
        resumed(foreign)
    except UntrustedAgent as untrusted:
        trust(untrusted)
    with pytest.raises(UsageError, match="A replay executes no code"):
        _ = RunAgent(str(evil), may_run_code=False).agent
    assert not was_executed(evil)
    assert RunAgent("blackjack", may_run_code=False).title == "Blackjack"
