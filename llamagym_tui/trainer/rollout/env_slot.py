"""One environment and the episode that is played in it; faults of other people's code leave as `EpisodeFault`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium

from llamagym_tui.config import SEED_BITS, Mode
from llamagym_tui.demos.demonstration import PlayedTurn
from llamagym_tui.engine.policy.episode import Episode, Prompt
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import End, Trajectory
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import RAISED, PromptTooLongError
from llamagym_tui.game import observed
from llamagym_tui.game.actions import ActionReading
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.game.observed import Info, Observed, described_turn
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.env_process import EnvProcess
from llamagym_tui.trainer.rollout.environments import (
    LARGEST_RETURN,
    Outcome,
    close,
    in_words,
    observation_text,
    stepped,
    was_reset,
    worded,
)
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import EpisodeFault, Notices
from llamagym_tui.trainer.rollout.opponents import Seat
from llamagym_tui.trainer.rollout.spectator import Spectator, Undrawn
from llamagym_tui.trainer.rollout.wheel import episode_corrected

NOT_RESET = Outcome(None, 0.0, False, False, observed.NO_INFO, False, 0)
AnyEnv = gymnasium.Env[Any, Any] | EnvProcess
MOST_COUNTED = 32
"""Actions up to which it is counted how often each was named."""


class Ended(NamedTuple):
    """An episode after its last turn."""

    trajectory: Trajectory
    counts: EpisodeCounts
    correction: events.EpisodeCorrected | None
    """The whole episode, if a person has acted in it."""
    was_watched: bool


class PendingPrompt(NamedTuple):
    """Where an episode waits for a reply."""

    env: int
    episode: int
    turn: int
    prompt: Opening
    """All ids before the reply."""
    actions: tuple[str, ...] | None
    """Names of those that are admissible. None: those of every turn."""


class Move(NamedTuple):
    """A reply, and what the agent read in it."""

    sampled: Reply
    reply: str
    replaced: str | None
    """The agent's own reply, if a person's is used instead."""
    reading: ActionReading
    action: Any


@dataclass(slots=True)
class Shared:
    """What all environments of a rollout have in common."""

    agent: AgentBase
    policy: Policy
    spectator: Spectator
    notices: Notices
    make_env: Callable[[], AnyEnv]
    max_turns: int
    seed: int
    """Seed of the run, from which each episode's own follows."""
    group_size: int
    """Episodes that are reset to the same seed."""
    ranks: int
    """Ranks that have the episodes' numbers in turn."""
    seed_bits: int = SEED_BITS
    """Bits of the seeds of episodes."""

    def group_of(self, number: int) -> int:
        """The number of the episodes that are reset to the same seed as one; all of them are of one rank."""
        nth, rank = divmod(number, self.ranks)
        return nth // self.group_size * self.ranks + rank

    def seed_of(self, number: int) -> int:
        """The seed to which an episode's environment is reset."""
        return episode_seed(self.seed, self.group_of(number), self.seed_bits)


@dataclass(slots=True)
class EnvSlot:
    shared: Shared
    index: int
    env: AnyEnv
    episode: Episode | None = None
    """None: none is under way."""
    counts: EpisodeCounts = field(default_factory=EpisodeCounts)
    """What is counted of that episode, or of the one before."""
    observation: str = ""
    seen: Any = None
    """What the agent has worded in that text."""
    admissible: tuple[str, ...] | None = None
    """Names of the actions that are admissible now. None: those of every turn."""
    actions: list[int] = field(default_factory=list)
    """Turns of the episode in which the reply named each action; empty: they are not counted."""
    outcome: Outcome = NOT_RESET
    """Of the last step, with the other player's reply to it, or of the reset."""
    others: list[PlayedTurn] = field(default_factory=list)
    """The other player's turns of the episode, where that is no part of the environment."""
    knows_last: bool = True
    """Whether the sampler has seen the last reply."""
    is_broken: bool = False
    """Whether its environment has failed, and is made anew before the next episode."""

    @property
    def under_way(self) -> Episode:
        """The episode, where one is known to be under way."""
        assert self.episode is not None
        return self.episode

    def close(self) -> None:
        close(self.env, self.index)

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function of the environment returns, called where that is."""
        if isinstance(self.env, EnvProcess):
            return self.env.call(function, *args)
        return function(self.env, *args)

    def prepare(self, number: int) -> None:
        """Let the next `begin` find its environment reset, or on the way to it, if that has a process of its own."""
        if isinstance(self.env, EnvProcess) and not self.is_broken:
            self.env.send(was_reset, self.shared.agent.env_id, self.shared.seed_of(number))

    def reset(self, number: int, mode: Mode, prompt_version: int) -> None:
        """Reset the environment for an episode. Raises EpisodeFault: it cannot be."""
        agent = self.shared.agent
        self.counts = EpisodeCounts(mode=mode, prompt_version=prompt_version, number=number)
        self.knows_last = True
        self.others = []
        try:
            if self.is_broken:
                self.close()
                self.env = self.shared.make_env()
                self.is_broken = False
        except RAISED as error:
            raise EpisodeFault(f"{agent.env_id} failed to reset", error) from error
        observation, info = self._call(was_reset, agent.env_id, self.shared.seed_of(number))
        self.outcome = Outcome(observation, 0.0, False, False, info, False, 0)

    @property
    def awaits_other(self) -> bool:
        """Whether the other player is to move, who is no part of the environment."""
        outcome = self.outcome
        is_over = outcome.terminated or outcome.truncated
        return not is_over and observed.is_opponents(outcome.info)

    def seat(self, system_prompt: str) -> Seat:
        """What the other player has before it. Raises EpisodeFault: the agent cannot word it."""
        shown = worded(self.shared.agent, self.outcome.observation, self.outcome.info)
        return Seat(self.shared.seed_of(self.counts.number), system_prompt, self.others, shown)

    def send_other(self, seat: Seat, reply: str) -> None:
        """Take the other player's reply, whose step begins in an environment that has a process of its own."""
        agent = self.shared.agent
        reading = agent.read(reply)
        action = agent.fallback_action if reading.failed else reading.action
        self.others.append(PlayedTurn(seat.shown.text, seat.shown.actions, reply, action, 0.0))
        if isinstance(self.env, EnvProcess):
            self.env.send(stepped, agent.env_id, action, reading.failed)

    def step_other(self) -> None:
        """The step of the other player's reply, which belongs to the turn before it. Raises EpisodeFault."""
        agent = self.shared.agent
        turn = self.others[-1]
        before = self.outcome
        outcome = self._call(stepped, agent.env_id, turn.action, agent.read(turn.reply).failed)
        self.outcome = outcome._replace(
            reward=before.reward + outcome.reward, is_refused=before.is_refused, steps=before.steps
        )

    def begin(self, system_prompt: str) -> None:
        """Begin the episode for which the environment was reset, and in which the policy is to move.

        Raises:
            EpisodeFault: it cannot begin.
            PromptTooLongError: the model cannot read its first prompt.
        """
        agent = self.shared.agent
        policy = self.shared.policy
        observation, info = self.outcome.observation, self.outcome.info
        mode, number = self.counts.mode, self.counts.number
        prompt_version = self.counts.prompt_version
        words = in_words(agent, policy, observation, info)
        self.observation = words.text
        self.seen = observation
        self.admissible = words.actions
        episode = Episode(policy, system_prompt, prompt_version=prompt_version)
        try:
            episode.require_fit(self.observation, self.admissible)
        except PromptTooLongError as error:
            raise PromptTooLongError(
                f"The system prompt and one observation of {agent.env_id} are too long: {error}; shorten them, or "
                "take a model with a longer context."
            ) from error
        self.episode = episode
        self.actions = []
        if len(agent.action_names) <= MOST_COUNTED:
            self.actions = [0] * len(agent.action_names)
        self._show(
            events.EpisodeStarted(
                episode=number,
                system_prompt=system_prompt,
                prompt_version=prompt_version,
                mode=mode,
            )
        )
        self._show_state(observation, info)
        self._show_observation()

    def prompt(self) -> Prompt:
        """What the sampler has not seen of the conversation, the new observation last."""
        prompt = self.under_way.observe(self.observation, self.admissible)
        if self.knows_last:
            return prompt
        self.knows_last = True
        return self.under_way.whole_prompt()

    def pending_prompt(self) -> PendingPrompt:
        prompt = self.under_way.prompt_for(self.observation, self.admissible)
        return PendingPrompt(
            env=self.index,
            episode=self.counts.number,
            turn=self.counts.length,
            prompt=prompt,
            actions=self.admissible,
        )

    def move(self, reply: Reply, text: str | None = None, replaced: str | None = None) -> Move:
        """Read a reply, of which an environment in a process of its own begins the step.

        With `replaced`, the policy's own, the text is a person's; its value is the reply's.
        """
        agent = self.shared.agent
        chat = self.shared.policy.chat
        said = chat.reply(reply.ids) if text is None else text
        if text is None:
            text = chat.reply(reply.ids)
        reading = agent.read(said)
        self.shared.notices.of_reading(text, reading)
        action = agent.fallback_action if reading.failed else reading.action
        if isinstance(self.env, EnvProcess):
            self.env.send(stepped, agent.env_id, action, reading.failed)
        return Move(reply, text, replaced, reading, action)

    def step(self, move: Move) -> None:
        """Step the environment by the policy's own reply; `outcome` is what comes of it. Raises EpisodeFault."""
        self._require_chosen(move)
        if move.replaced is None:
            self.under_way.reply(move.sampled)
        else:
            self.under_way.add_untrained_reply(move.reply, value=move.sampled.value)
            self.counts = replace(self.counts, is_corrected=True)
            self.knows_last = False
        outcome = self._call(stepped, self.shared.agent.env_id, move.action, move.reading.failed)
        if outcome.is_refused:
            self.shared.notices.of_refusal(move.reply)
        self.outcome = outcome

    def _require_chosen(self, move: Move) -> None:
        """Raises EpisodeFault: a reply was chosen for an action, and the agent reads another one in it, or none."""
        choice = move.sampled.choice
        if choice is None or move.replaced is not None:
            return
        agent = self.shared.agent
        names = agent.action_names if self.admissible is None else self.admissible
        name = names[self.shared.policy.trie_of(self.admissible).actions[choice.chosen]]
        chosen = observed.action_named(agent, name)
        read = move.action
        # An agent's own code may make more of a name than an index.
        is_another = isinstance(chosen, int) and isinstance(read, int) and read != chosen
        if move.reading.failed or is_another:
            found = "no action" if move.reading.failed else agent.action_name(read)
            raise EpisodeFault(
                f"{type(agent).__name__} reads {found} in {move.reply!r}, the reply that was chosen for {name!r}: let "
                "extract_action read what format_action writes"
            )

    def add(self, move: Move) -> Ended | None:
        """Credit a turn and show what followed; None: the episode goes on."""
        outcome = self.outcome
        agent = self.shared.agent
        before = self.counts
        reward = outcome.reward
        names_none = move.reading.failed
        # Of a reply that names none it was the fallback that was refused.
        is_refused = outcome.is_refused and not names_none
        # Not `>`, so that a return that is no number is refused, too.
        if not abs(before.episode_return + reward) <= LARGEST_RETURN:
            raise EpisodeFault(
                f"the reward of {agent.env_id} is {reward:g}; it has to be a finite number, and no return beyond "
                f"{LARGEST_RETURN:.0e}"
            )
        is_over = outcome.terminated or outcome.truncated
        if is_over:  # a mask may forbid every action then
            words = Observed(observation_text(agent, outcome.observation, outcome.info), None)
        else:
            words = in_words(agent, self.shared.policy, outcome.observation, outcome.info)
        self.under_way.reward(
            reward, parse_failed=names_none, refused=is_refused, steps=outcome.steps
        )
        # Which action the policy's own reply named.
        is_named = move.replaced is None and not names_none and isinstance(move.action, int)
        if is_named and 0 <= move.action < len(self.actions):
            self.actions[move.action] += 1
        self._show(
            events.TurnFinished(
                episode=before.number,
                turn=before.length,
                reply=move.reply,
                action=shown_action(move.action),
                action_name=agent.action_name(move.action),
                how=move.reading.how if move.replaced is None else "human",
                reward=reward,
                replaced=move.replaced,
                replaced_action="" if move.replaced is None else named_action(agent, move.replaced),
                is_refused=outcome.is_refused,
                words=described_turn(agent, self.seen, move.action, reward),
                probability=probability_of(agent, move),
            )
        )
        self.counts = replace(
            before,
            episode_return=before.episode_return + reward,
            length=before.length + 1,
            parse_failures=before.parse_failures + int(names_none),
            refusals=before.refusals + int(is_refused),
        )
        self.observation = words.text
        self.seen = outcome.observation
        self.admissible = words.actions
        self._show_state(outcome.observation, outcome.info, is_over=is_over)
        if outcome.terminated:
            return self._end("terminated")
        if outcome.truncated:
            return self._end("truncated")
        if why := self._cut():
            self.shared.notices.of_cut(why)
            return self._end("truncated")
        self._show_observation()
        return None

    def _cut(self) -> str:
        """Why the episode cannot go on although its environment could; empty: it can."""
        try:
            self.under_way.require_fit(self.observation, self.admissible)
        except PromptTooLongError as error:
            return f"once an observation is too long: {error}"
        if self.counts.length < self.shared.max_turns:
            return ""
        own = getattr(self.env.spec, "max_episode_steps", None)
        limit = f"; its own limit is {own:,}" if own else ""
        return (
            f"after {self.shared.max_turns:,} turns{limit}: --set max_turns=N sets another number"
        )

    def is_at(self, episode: int, turn: int) -> bool:
        """Whether so many turns of an episode have been played, and no more."""
        return self.counts.number == episode and self.counts.length == turn

    @property
    def can_be_cut(self) -> bool:
        """Whether there are turns to cut off for an update."""
        return self.episode is not None and self.counts.mode == "train" and self.episode.can_be_cut

    def cut(self) -> Trajectory:
        """What was played since the last cut, for an update; the episode goes on."""
        part = self.under_way.cut(self.observation)
        part.episode = self.counts.number
        return part

    def _end(self, end: End) -> Ended:
        trajectory = self.under_way.finish(end, self.observation if end == "truncated" else None)
        trajectory.episode = self.counts.number
        if self.shared.group_size > 1:
            trajectory.group = self.shared.group_of(self.counts.number)
        self.episode = None
        self.shared.notices.of_episode(self.counts)
        was_watched = self.shared.spectator.env == self.index
        self._show(self._finished(end))
        counts = replace(self.counts, actions=tuple(self.actions), is_truncated=end == "truncated")
        correction = episode_corrected(self.history) if counts.is_corrected else None
        return Ended(trajectory, counts, correction, was_watched)

    def drop(self, fault: EpisodeFault) -> None:
        """Leave the episode out; its environment is made anew before the next one."""
        self.episode = None
        self.is_broken = True
        self._show(events.EpisodeDropped(episode=self.counts.number, reason=str(fault)))

    def take_correction(self) -> events.EpisodeCorrected | None:
        """The episode under way if a person has acted in it, as cut off where it stands, once; it will not go on."""
        was_corrected = self.counts.is_corrected
        self.counts = replace(self.counts, is_corrected=False)
        if self.episode is None or not was_corrected:
            return None
        history = self.history
        for event in history:
            # A turn that its environment has failed in has no event.
            if isinstance(event, events.TurnFinished) and event.replaced is not None:
                return episode_corrected([*history, self._finished("truncated")])
        return None

    @property
    def history(self) -> list[events.Event]:
        return self.shared.spectator.events_of(self.index)

    def _finished(self, end: End) -> events.EpisodeFinished:
        return events.EpisodeFinished(
            episode=self.counts.number,
            episode_return=self.counts.episode_return,
            length=self.counts.length,
            end=end,
        )

    def _show(self, event: events.Event) -> None:
        self.shared.spectator.observe(self.index, event)

    def _show_state(self, observation: Any, info: Info, *, is_over: bool = False) -> None:
        counts = self.counts
        state = Undrawn(self.index, counts.number, counts.length, observation, info, is_over)
        self.shared.spectator.observe_state(state)

    def _show_observation(self) -> None:
        policy = self.shared.policy
        agent = self.shared.agent
        if policy.generation.policy == "score" and not policy.trie_of(self.admissible):
            raise EpisodeFault(
                f"{type(agent).__name__}.actions names no action, and the score policy chooses among them"
            )
        if left_out := self.under_way.left_out(self.observation, self.admissible):
            self.shared.notices.of_left_out(policy.context)
        self._show(
            events.ObservationShown(
                episode=self.counts.number,
                turn=self.counts.length,
                text=self.observation,
                left_out=left_out,
                actions=None if self.admissible is None else list(self.admissible),
            )
        )


def named_action(agent: AgentBase, reply: str) -> str:
    """The name of the action that an agent reads in a reply; empty if it names none."""
    reading = agent.read(reply)
    return "" if reading.failed else agent.action_name(reading.action)


def probability_of(agent: AgentBase, move: Move) -> float | None:
    """The probability with which an action was sampled, in four decimals.

    None: a person acted, or the reply is not the plainest one of its action, so that its own probability says little.
    """
    sampled = move.sampled
    if move.replaced is not None or move.reading.failed:
        return None
    if sampled.choice is not None:
        return round(math.exp(sampled.choice.logprob), 4)
    try:
        plainest = agent.format_action(move.action)
    except TypeError:  # as of an array, which JSON does not have
        return None
    if not sampled.logprobs or move.reply != plainest:
        return None
    return round(math.exp(sum(sampled.logprobs)), 4)


def shown_action(action: Any) -> int | float | str:
    """An action as its event has it: a number that every reader of JSON can hold, or its text."""
    is_plain = type(action) in (int, float) and abs(action) < 2**53
    return action if is_plain else str(action)
