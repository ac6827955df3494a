"""An environment that says no: such a reply has a figure of its own beside those that name no action."""

from __future__ import annotations

from llamagym_tui.engine.learning.rewards import turn_rewards
from llamagym_tui.protocol.events import TurnFinished
from llamagym_tui.screens.conversation.turns import paragraphs
from llamagym_tui.trainer.rollout.episode_counts import evaluated
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.text_env import ChestAgent


def play(make_policy, steps: int, max_turns: int = 4):
    emitted = []
    rollout = Rollout(
        ChestAgent(),
        make_policy(),
        n_envs=1,
        max_turns=max_turns,
        batch_turns=99,
        seed=1,
        emit=emitted.append,
    )
    ended = [episode for _ in range(steps) for episode in rollout.step()]
    return rollout, ended, emitted


def test_a_refused_action_is_counted_apart_and_charged_as_a_reply_that_names_none(make_policy):
    rollout, (episode,), emitted = play(make_policy, steps=4)
    assert (episode.length, episode.parse_failures, episode.refusals) == (4, 0, 4)
    found = evaluated([episode], greedy=True, elapsed_s=1.0)
    assert (found.parse_failure_rate, found.refusal_rate) == (0.0, 1.0)
    (trajectory,) = rollout.take_batch()
    assert turn_rewards(trajectory.turns, scale=1.0, parse_penalty=0.5).tolist() == [-0.5] * 4
    turns = [event for event in emitted if isinstance(event, TurnFinished)]
    assert {(turn.how, turn.is_refused) for turn in turns} == {("custom", True)}
    (action,) = paragraphs(turns[0])
    assert " · read by the agent, refused by the environment" in action.text.plain
    assert action.label_style == "$text-warning"


def test_a_fallback_that_is_refused_is_a_reply_that_names_none(make_policy, monkeypatch):
    monkeypatch.setattr(ChestAgent, "extract_action", lambda self, response: None)
    monkeypatch.setattr(ChestAgent, "fallback_action", "dance")
    _, (episode,), emitted = play(make_policy, steps=4)
    assert (episode.parse_failures, episode.refusals) == (4, 0)
    assert {event.is_refused for event in emitted if isinstance(event, TurnFinished)} == {True}
