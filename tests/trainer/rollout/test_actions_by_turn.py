"""Actions that depend on the state: what is chosen, shown, offered to a person and repeated after a resume."""

from __future__ import annotations

import msgspec
import pytest

from llamagym_tui.errors import UsageError
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.game.observed import action_named
from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.trainer.probes.inspect_reply import ActionProbes
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.text_env import ROOMS, CommandAgent


def commands_of(text: str) -> list[str]:
    return next(
        commands
        for room, commands in ROOMS.values()
        if text == f"{room} You can: {', '.join(commands)}."
    )


@pytest.fixture
def make(make_policy):
    def rollout(agent=None, *, n_envs: int = 6, policy: str = "score", replies=(), **settings):
        agent, emitted = agent or CommandAgent(), []
        chosen = {"policy": "generate"} if policy == "generate" else {}
        made = make_policy(replies=replies or ["x"], **chosen)
        made = type(made)(
            made.model, made.chat.tokenizer, msgspec.structs.replace(made.generation, policy=policy), replies,
            replies_of=lambda name: agent.format_action(action_named(agent, name)), names_by_turn=True,
        )  # fmt: skip
        settings = {"max_turns": 8, "batch_turns": 1000, "seed": 1} | settings
        return Rollout(agent, made, n_envs=n_envs, emit=emitted.append, **settings), emitted

    return rollout


def test_the_score_policy_plays_admissible_commands_alone(make):
    rollout, emitted = make()
    ended = [episode for _ in range(24) for episode in rollout.step()]
    assert len(ended) >= 12
    assert sum(episode.parse_failures for episode in ended) == 0
    shown = [event for event in emitted if isinstance(event, events.ObservationShown)]
    turns = [event for event in emitted if isinstance(event, events.TurnFinished)]
    assert len({tuple(event.actions) for event in shown}) > 1
    for observation, turn in zip(shown, turns, strict=False):
        assert observation.actions == commands_of(observation.text)
        assert turn.action in observation.actions


def test_probabilities_are_those_of_the_actions_of_the_turn_that_waits(make):
    rollout, _ = make()
    probes = ActionProbes(rollout.agent, rollout.policy)
    for _ in range(5):
        rollout.step()
        rollout.begin_episodes()
        where = rollout.pending_prompt()
        probed = probes.probe(where)
        assert probed.names == commands_of(rollout.slots[0].shown.text)
        assert sum(probed.shares) == pytest.approx(1.0)
        messages = [
            *rollout.slots[0].under_way.conversation,
            {"role": "user", "content": rollout.slots[0].shown.text},
        ]
        messages[-1]["actions"] = probed.names
        answer = probes.probe_conversation(ProbeActions(ticket=1, messages=messages))
        assert (answer.names, answer.shares) == (
            probed.names,
            pytest.approx(probed.shares, abs=1e-5),
        )


def test_a_person_at_the_wheel_is_offered_what_can_be_done_in_each_turn(make):
    rollout, emitted = make(n_envs=1)
    rollout.take_wheel()
    rollout.step()
    taken, (awaited,) = (
        emitted[0],
        [event for event in emitted if isinstance(event, events.ActionAwaited)],
    )
    assert taken == events.WheelTaken(env=0, choices=[])
    assert awaited.choices == [
        OfferedAction("0", "take key", "take key"),
        OfferedAction("1", "go north", "go north"),
    ]
    with pytest.raises(UsageError, match="no action open chest"):
        rollout.act(0, 0, "open chest")
    for turn, command in enumerate(("take key", "go north", "open chest")):
        rollout.act(0, turn, command)
        rollout.step()
        rollout.step()
    (corrected,) = [event for event in emitted if isinstance(event, events.EpisodeCorrected)]
    assert corrected.finished.episode_return == 1.0
    assert corrected.admissible == [
        ROOMS[room][1] for room in ("hall", "hall, with key", "attic, with key")
    ]


def test_a_turn_without_any_action_cannot_be_chosen_and_is_explained(make):
    rollout, emitted = make(
        type("Silent", (CommandAgent,), {"actions": lambda self, observation, info: []})()
    )
    rollout.step()
    (reason,) = {event.reason for event in emitted if isinstance(event, events.EpisodeDropped)}
    assert reason == "Silent.actions names no action, and the score policy chooses among them"
