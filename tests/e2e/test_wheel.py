"""A person at the wheel of a real trainer: they act, the run goes on, and its end leaves a model that others load."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llamagym_tui.protocol.commands import (
    Act,
    Evaluate,
    InspectTurn,
    LetGo,
    SetMode,
    SetSystemPrompt,
    TakeWheel,
)
from llamagym_tui.protocol.events import (
    ActionAwaited,
    EpisodeCorrected,
    EpisodesCounted,
    EvaluationFinished,
    ModeChanged,
    PromptChanged,
    RunFinished,
    TurnFinished,
    TurnInspected,
    UpdateFinished,
    WheelLetGo,
    WheelTaken,
)
from tests.e2e.test_trainer_process import SMALL
from tests.e2e.trainer_process import TrainerProcess


def act(trainer: TrainerProcess, action: int) -> TurnFinished:
    """Act in the next turn that waits."""
    awaited = trainer.wait_for(ActionAwaited)
    trainer.send(Act(episode=awaited.episode, turn=awaited.turn, action=action))
    return trainer.wait_for(TurnFinished, lambda event: event.how == "human")


def test_a_person_acts_a_run_goes_on_without_them_and_ends_with_a_checkpoint_while_it_waits_for_them(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TrainerProcess(tmp_path) as trainer:
        trainer.start(model=model, ppo=SMALL)
        trainer.wait_for(EpisodesCounted)
        trainer.send(TakeWheel())
        assert [choice.name for choice in trainer.wait_for(WheelTaken).choices] == ["stick", "hit"]
        turn = act(trainer, 0)
        assert (turn.reply, turn.action_name) == ('{"action": 0}', "stick")
        assert turn.replaced is not None
        whole = trainer.wait_for(EpisodeCorrected)
        assert (whole.turns[-1].reply, whole.turns[-1].replaced) == (turn.reply, turn.replaced)
        trainer.wait_for(ActionAwaited)
        trainer.send(Evaluate(episodes=4))  # obeyed while the turn waits
        trainer.wait_for(EvaluationFinished)
        trainer.send(InspectTurn(episode=turn.episode, turn=turn.turn))
        assert not trainer.wait_for(TurnInspected).said_by_policy
        trainer.send(SetMode(mode="inference"))
        trainer.wait_for(ModeChanged)
        trainer.send(LetGo())
        trainer.wait_for(WheelLetGo)
        trainer.send(SetMode(mode="train"))
        update = trainer.wait_for(UpdateFinished)
        assert update.stats.first_ratio < 1e-3
        trainer.send(TakeWheel())
        trainer.wait_for(ActionAwaited)
        trainer.send(
            SetSystemPrompt(system_prompt="Hit below 13.")
        )  # there is something new to save
        trainer.wait_for(PromptChanged)
        before = (tmp_path / "model").stat().st_mtime_ns
        trainer.end_commands()
        assert trainer.ends() == 0
        assert (tmp_path / "model").stat().st_mtime_ns > before
        assert isinstance(trainer.events[-1], RunFinished)
        played = trainer.of(EpisodesCounted)
        counted = played[-1].episodes - sum(len(event.returns) for event in played)
        assert counted == len(trainer.of(EpisodeCorrected)) == 1
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr(socket.socket, "connect", no_network)
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Your total: 12."}],
        add_generation_prompt=True,
        return_tensors="pt",
    )
    assert policy(**ids).logits.isfinite().all()


def no_network(*address: object) -> None:
    raise AssertionError(f"the network was asked for: {address}")
