"""A place in a rollout: one game, and the episode that the policy plays in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.trajectory import End, Trajectory
from llamagym_tui.errors import RAISED, PromptTooLongError
from llamagym_tui.game.drawing import drawn
from llamagym_tui.game.game import EpisodeFault, Game, require_finite
from llamagym_tui.game.observed import Observed, action_named, described_turn
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.opponents import Seat

if TYPE_CHECKING:
    from llamagym_tui.demos.demonstration import PlayedTurn
    from llamagym_tui.engine.policy.policy import Policy
    from llamagym_tui.engine.policy.sampler import Reply
    from llamagym_tui.game.actions import ActionReading
    from llamagym_tui.game.agent_base import AgentBase
    from llamagym_tui.trainer.rollout.failures import Notices
    from llamagym_tui.trainer.rollout.spectator import Spectator, Wheel


class Owner(Protocol):
    """A rollout, as far as its slots know it."""

    agent: AgentBase
    policy: Policy
    spectator: Spectator
    wheel: Wheel
    notices: Notices
    emit: Callable[[events.Event], None]
    is_drawing: bool
    max_turns: int
    system_prompt: str
    wording: int | None


class Move(NamedTuple):
    """A reply, and the action that the agent read in it."""

    sampled: Reply
    reply: str
    replaced: str | None
    """The agent's own reply, if a person's is used instead."""
    reading: ActionReading
    action: Any


class EnvSlot:
    def __init__(self, rollout: Owner, index: int, game: Game) -> None:
        """An environment in which no episode is under way."""
        self.rollout = rollout
        self.index = index
        self.game = game
        self.episode: Episode | None = None
        """None: none is under way."""
        self.counts = EpisodeCounts()
        """Of that episode, or of the one before."""
        self.shown = Observed("", None)
        """The state before the next reply, in the agent's words."""
        self.others: list[PlayedTurn] = []
        """Turns of the other player, where that is a policy."""
        self._seed = 0
        """Of the episode."""
        self._seen: Any = None
        """The observation that `shown` words."""

    @property
    def under_way(self) -> Episode:
        """The episode, where one is known to be under way."""
        assert self.episode is not None
        return self.episode

    @property
    def is_training(self) -> bool:
        """An episode of train mode is under way."""
        return self.episode is not None and self.counts.mode == "train"

    @property
    def is_watched(self) -> bool:
        return self.rollout.spectator.env == self.index

    def reset(self, counts: EpisodeCounts, seed: int, wording: int = 0) -> None:
        """Reset the environment for another episode, in a wording of the agent's. Raises EpisodeFault."""
        self.counts = counts
        self.game.wording = wording
        self.others = []
        self._seed = seed
        self.game.reset(seed)

    def seat(self) -> Seat:
        """The other player's situation. Raises EpisodeFault: the agent cannot word it."""
        prompt = self.rollout.system_prompt
        if self.episode is not None:
            prompt = self.episode.system_prompt
        return Seat(self._seed, prompt, self.others, self.game.look())

    def step_other(self, seat: Seat, reply: str) -> None:
        """Make the other player's step; its reward is for the turn before it. Raises EpisodeFault."""
        reading = self.rollout.agent.read(reply)
        action = self.rollout.agent.fallback_action if reading.failed else reading.action
        self.others.append(seat.turn(reply, action))
        before = self.game.outcome
        outcome = self.game.step(action, is_fallback=reading.failed)
        self.game.outcome = outcome._replace(
            reward=before.reward + outcome.reward, is_refused=before.is_refused, steps=before.steps
        )

    def begin(self) -> None:
        """Begin the episode for which the environment was reset, and in which the policy is to move.

        Raises:
            EpisodeFault: it cannot begin.
            PromptTooLongError: the model cannot read its first prompt.
        """
        rollout = self.rollout
        self._look()
        episode = Episode(rollout.policy, rollout.system_prompt, self.game.wording)
        try:
            episode.require_fit(*self.shown)
        except PromptTooLongError as error:
            raise PromptTooLongError(
                f"The system prompt and one observation of {rollout.agent.env_id} are too long: {error}; shorten "
                "them, or take a model with a longer context."
            ) from error
        self.episode = episode
        self._word_kept_back()
        self._show(
            events.EpisodeStarted(
                episode=self.counts.number,
                system_prompt=rollout.system_prompt,
                prompt_version=self.counts.prompt_version,
                mode=self.counts.mode,
            )
        )
        self.draw()
        self._show_observation()

    def _word_kept_back(self) -> None:
        """Have the next prompt read in the wording kept for evaluations, too, as often as others are played.

        A prompt with earlier turns is not, as no turn is played in that wording.
        """
        wordings = len(self.rollout.agent.wordings)
        if self.rollout.wording is not None or self.counts.number % wordings:
            return
        episode = self.under_way
        if episode.turns == 0 or episode.history == 0:
            prompt = episode.prompt_for(self.game.words(wordings))
            tokens = len(prompt.prefix) + len(prompt.rest)
            if episode.policy.fits(tokens, episode.policy.trie_of(self.shown.actions)):
                episode.kept_back = prompt

    def _look(self) -> None:
        """Word the state; the policy knows the replies that name its actions then."""
        self.shown = self.game.look()
        self._seen = self.game.outcome.observation
        try:
            self.rollout.policy.trie_of(self.shown.actions)
        except RAISED as error:
            name = type(self.rollout.agent).__name__
            raise EpisodeFault(f"{name}.actions failed", error) from error

    def move(self, reply: Reply, person: str | None = None) -> Move:
        """Read the policy's reply, or the `person`'s in its place."""
        agent = self.rollout.agent
        own = self.rollout.policy.chat.reply(reply.ids)
        text = own if person is None else person
        reading = agent.read(text)
        self.rollout.notices.of_reading(text, reading)
        action = agent.fallback_action if reading.failed else reading.action
        return Move(reply, text, None if person is None else own, reading, action)

    def play(self, move: Move) -> None:
        """Keep a reply in the episode and make its step. Raises EpisodeFault."""
        if move.replaced is not None:
            self.under_way.add_untrained_reply(move.reply, value=move.sampled.value)
        else:
            self._require_chosen(move)
            self.under_way.reply(move.sampled)
        self.game.step(move.action, is_fallback=move.reading.failed)

    def _require_chosen(self, move: Move) -> None:
        """Raises EpisodeFault if the agent reads another action, or none, in a reply that was chosen for an action."""
        if move.sampled.choice is None:
            return
        agent = self.rollout.agent
        names = agent.action_names if self.shown.actions is None else self.shown.actions
        indices = self.rollout.policy.trie_of(self.shown.actions).actions
        name = names[indices[move.sampled.choice.chosen]]
        chosen = action_named(agent, name)
        # An agent's own code may make more of a name than an index.
        are_indices = isinstance(chosen, int) and isinstance(move.action, int)
        if move.reading.failed or (are_indices and move.action != chosen):
            found = "no action" if move.reading.failed else agent.action_name(move.action)
            raise EpisodeFault(
                f"{type(agent).__name__} reads {found} in {move.reply!r}, the reply that was chosen for {name!r}: let "
                "extract_action read what format_action writes"
            )

    def finish_turn(self, move: Move) -> Trajectory | None:
        """Credit a turn after its step, and show the state that followed; None: the episode goes on."""
        agent = self.rollout.agent
        counts = self.counts
        outcome = self.game.outcome
        reward = outcome.reward
        # A reply that names no action is not what was refused: the fallback was.
        is_refused = outcome.is_refused and not move.reading.failed
        require_finite(agent, counts.episode_return + reward, reward)
        seen = self._seen
        self._look()
        self.under_way.reward(
            reward, parse_failed=move.reading.failed, refused=is_refused, steps=outcome.steps
        )
        self._show(
            events.TurnFinished(
                episode=counts.number,
                turn=counts.length,
                reply=move.reply,
                action=shown_action(move.action),
                action_name=agent.action_name(move.action),
                how=move.reading.how if move.replaced is None else "human",
                reward=reward,
                replaced=move.replaced,
                replaced_action="" if move.replaced is None else named_action(agent, move.replaced),
                is_refused=outcome.is_refused,
                words=described_turn(agent, seen, move.action, reward),
                probability=_probability(move),
            )
        )
        counts.episode_return += reward
        counts.length += 1
        counts.parse_failures += move.reading.failed
        counts.refusals += is_refused
        counts.is_corrected |= move.replaced is not None
        self.draw()
        if outcome.terminated:
            return self._finish("terminated")
        if outcome.truncated:
            return self._finish("truncated")
        if why := self._cut_off():
            self.rollout.notices.of_cut(why)
            return self._finish("truncated")
        self._word_kept_back()
        self._show_observation()
        return None

    def _cut_off(self) -> str:
        """Why the episode cannot go on although its environment could; empty: it can."""
        try:
            self.under_way.require_fit(*self.shown)
        except PromptTooLongError as error:
            return f"once an observation is too long: {error}"
        most = self.rollout.max_turns
        if self.counts.length < most:
            return ""
        return f"after {most:,} turns: --set max_turns=N sets another number"

    def is_at(self, episode: int, turn: int) -> bool:
        """Exactly this many turns of this episode have been played."""
        return self.counts.number == episode and self.counts.length == turn

    @property
    def can_be_cut(self) -> bool:
        """There are turns to cut off for an update."""
        return self.is_training and self.under_way.can_be_cut

    def cut(self) -> Trajectory:
        """The turns since the last cut, for an update; the episode goes on."""
        part = self.under_way.cut(self.shown.text)
        part.episode = self.counts.number
        return part

    def _finish(self, end: End) -> Trajectory:
        trajectory = self.under_way.finish(end, self.shown.text if end == "truncated" else None)
        trajectory.episode = self.counts.number
        self.episode = None
        self.counts.is_truncated = end == "truncated"
        self.rollout.notices.of_episode(self.counts)
        self._show(self.finished(end))
        return trajectory

    def drop(self, fault: EpisodeFault) -> None:
        """Leave the episode out; its environment is made anew before the next one."""
        self.episode = None
        self.game.is_broken = True
        self._show(events.EpisodeDropped(episode=self.counts.number, reason=str(fault)))

    @property
    def history(self) -> list[events.Event]:
        return self.rollout.spectator.events_of(self.index)

    def finished(self, end: End) -> events.EpisodeFinished:
        """The end of the episode, now."""
        return events.EpisodeFinished(
            episode=self.counts.number,
            episode_return=self.counts.episode_return,
            length=self.counts.length,
            end=end,
        )

    def draw(self) -> None:
        """Emit a drawing of the state, if somebody watches and wants it."""
        if not (self.rollout.is_drawing and self.is_watched and self.history):
            return
        state = self.game.outcome
        found = drawn(
            self.rollout.agent,
            self.game.env,
            state.observation,
            state.info,
            is_over=state.is_over,
            player="you" if self.rollout.wheel.env == self.index else "model",
        )
        if found.text:
            self.rollout.emit(
                events.StateDrawn(
                    episode=self.counts.number,
                    turn=self.counts.length,
                    text=found.text,
                    grounds=list(found.grounds),
                )
            )

    def _show(self, event: events.Event) -> None:
        self.rollout.spectator.observe(self.index, event)

    def _show_observation(self) -> None:
        policy = self.rollout.policy
        if policy.generation.policy == "score" and not policy.trie_of(self.shown.actions):
            name = type(self.rollout.agent).__name__
            raise EpisodeFault(
                f"{name}.actions names no action, and the score policy chooses among them"
            )
        if left_out := self.under_way.left_out(*self.shown):
            self.rollout.notices.of_left_out(policy.context)
        self._show(
            events.ObservationShown(
                episode=self.counts.number,
                turn=self.counts.length,
                text=self.shown.text,
                left_out=left_out,
                actions=None if self.shown.actions is None else list(self.shown.actions),
            )
        )


def named_action(agent: AgentBase, reply: str) -> str:
    """The name of the action that an agent reads in a reply; empty if it names none."""
    reading = agent.read(reply)
    return "" if reading.failed else agent.action_name(reading.action)


def _probability(move: Move) -> float | None:
    """The probability with which a reply was sampled, in four decimals; None: a person acted, or it names no action."""
    sampled = move.sampled
    if move.replaced is not None or move.reading.failed:
        return None
    if sampled.choice is not None:
        return round(math.exp(sampled.choice.logprob), 4)
    return round(math.exp(sum(sampled.logprobs)), 4) if sampled.logprobs else None


def shown_action(action: Any) -> int | float | str:
    """An action as its event has it: a number that every reader of JSON can hold, or its text."""
    is_plain = type(action) in (int, float) and abs(action) < 2**53
    return action if is_plain else str(action)
