"""A place in a rollout: one game, and the episode that the policy plays in it."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from llamagym_tui.demos.demonstration import PlayedTurn
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import End, Trajectory
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import RAISED, PromptTooLongError
from llamagym_tui.game import observed
from llamagym_tui.game.actions import ActionReading
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.game.game import EpisodeFault, Game, require_finite
from llamagym_tui.game.observed import Observed, described_turn
from llamagym_tui.protocol import events
from llamagym_tui.settings import SEED_BITS, Mode
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import Notices
from llamagym_tui.trainer.rollout.opponents import Seat
from llamagym_tui.trainer.rollout.spectator import Spectator, Undrawn
from llamagym_tui.trainer.rollout.wheel import episode_corrected

NOTHING = Observed("", None)
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
    """Settings that all slots of a rollout share."""

    agent: AgentBase
    policy: Policy
    spectator: Spectator
    notices: Notices
    max_turns: int
    seed: int
    """Seed of the run, from which each episode's own follows."""
    group_size: int
    """Episodes that are reset to the same seed."""
    ranks: int
    """Processes that take the episodes' numbers in turn."""
    seed_bits: int = SEED_BITS
    """Bits of the seeds of episodes."""

    def group_of(self, number: int) -> int:
        """The number of the episodes that share a seed with this one; one rank plays all of them."""
        nth, rank = divmod(number, self.ranks)
        return nth // self.group_size * self.ranks + rank

    def seed_of(self, number: int) -> int:
        """The seed to which an episode's environment is reset."""
        return episode_seed(self.seed, self.group_of(number), self.seed_bits)


@dataclass(slots=True, eq=False)
class EnvSlot:
    shared: Shared
    index: int
    game: Game
    episode: Episode | None = None
    """None: none is under way."""
    counts: EpisodeCounts = field(default_factory=EpisodeCounts)
    """Of that episode, or of the one before."""
    shown: Observed = NOTHING
    """The state before the next reply, in the agent's words."""
    seen: Any = None
    """The observation that these words are about."""
    actions: list[int] = field(default_factory=list)
    """Turns of the episode in which the reply named each action; empty: they are not counted."""
    others: list[PlayedTurn] = field(default_factory=list)
    """Turns of the other player, if a policy is that."""

    @property
    def under_way(self) -> Episode:
        """The episode, where one is known to be under way."""
        assert self.episode is not None
        return self.episode

    def reset(self, number: int, mode: Mode, prompt_version: int) -> None:
        """Take the next episode's number; `game` is reset by the caller."""
        self.counts = EpisodeCounts(mode=mode, prompt_version=prompt_version, number=number)
        self.others = []

    def seat(self, system_prompt: str) -> Seat:
        """The other player's situation. Raises EpisodeFault: the agent cannot word it."""
        shown = self.game.look()
        return Seat(self.shared.seed_of(self.counts.number), system_prompt, self.others, shown)

    def step_other(self, seat: Seat, reply: str) -> None:
        """Make the other player's step; its reward is for the turn before it. Raises EpisodeFault."""
        agent = self.shared.agent
        reading = agent.read(reply)
        action = agent.fallback_action if reading.failed else reading.action
        self.others.append(PlayedTurn(seat.shown.text, seat.shown.actions, reply, action, 0.0))
        before = self.game.outcome
        outcome = self.game.step(action, is_fallback=reading.failed)
        self.game.outcome = outcome._replace(
            reward=before.reward + outcome.reward, is_refused=before.is_refused, steps=before.steps
        )

    def begin(self, system_prompt: str) -> None:
        """Begin the episode for which the environment was reset, and in which the policy is to move.

        Raises:
            EpisodeFault: it cannot begin.
            PromptTooLongError: the model cannot read its first prompt.
        """
        agent = self.shared.agent
        prompt_version = self.counts.prompt_version
        self._look()
        episode = Episode(self.shared.policy, system_prompt, prompt_version=prompt_version)
        try:
            episode.require_fit(*self.shown)
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
                episode=self.counts.number,
                system_prompt=system_prompt,
                prompt_version=prompt_version,
                mode=self.counts.mode,
            )
        )
        self._show_state()
        self._show_observation()

    def _look(self) -> None:
        """Word the state; the policy knows the replies that name its actions then."""
        self.shown = self.game.look()
        self.seen = self.game.outcome.observation
        try:
            self.shared.policy.trie_of(self.shown.actions)
        except RAISED as error:
            raise EpisodeFault(
                f"{type(self.shared.agent).__name__}.actions failed", error
            ) from error

    def prompt(self) -> Opening:
        """All ids before the reply to the new observation."""
        return self.under_way.observe(*self.shown)

    def pending_prompt(self) -> PendingPrompt:
        return PendingPrompt(
            env=self.index,
            episode=self.counts.number,
            turn=self.counts.length,
            prompt=self.under_way.prompt_for(*self.shown),
            actions=self.shown.actions,
        )

    def move(self, reply: Reply, text: str | None = None, replaced: str | None = None) -> Move:
        """Read a reply. With `replaced`, the policy's own reply, the text is a person's."""
        agent = self.shared.agent
        chat = self.shared.policy.chat
        said = chat.reply(reply.ids) if text is None else text
        if text is None:
            text = chat.reply(reply.ids)
        reading = agent.read(said)
        self.shared.notices.of_reading(text, reading)
        action = agent.fallback_action if reading.failed else reading.action
        return Move(reply, text, replaced, reading, action)

    def keep(self, move: Move) -> None:
        """Keep a reply in the episode, before its step. Raises EpisodeFault."""
        self._require_chosen(move)
        if move.replaced is None:
            self.under_way.reply(move.sampled)
        else:
            self.under_way.add_untrained_reply(move.reply, value=move.sampled.value)
            self.counts = replace(self.counts, is_corrected=True)

    def _require_chosen(self, move: Move) -> None:
        """Raises EpisodeFault if the agent reads another action, or none, in a reply that was chosen for an action."""
        choice = move.sampled.choice
        if choice is None or move.replaced is not None:
            return
        agent = self.shared.agent
        actions = self.shown.actions
        names = agent.action_names if actions is None else actions
        name = names[self.shared.policy.trie_of(actions).actions[choice.chosen]]
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
        """Credit a turn after its step, and show what followed; None: the episode goes on."""
        outcome = self.game.outcome
        agent = self.shared.agent
        before = self.counts
        reward = outcome.reward
        names_none = move.reading.failed
        # Of a reply that names none it was the fallback that was refused.
        is_refused = outcome.is_refused and not names_none
        if outcome.is_refused:
            self.shared.notices.of_refusal(move.reply)
        require_finite(agent, before.episode_return + reward, reward)
        seen = self.seen
        self._look()
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
                words=described_turn(agent, seen, move.action, reward),
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
        self._show_state()
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
            self.under_way.require_fit(*self.shown)
        except PromptTooLongError as error:
            return f"once an observation is too long: {error}"
        if self.counts.length < self.shared.max_turns:
            return ""
        own = getattr(self.game.env.spec, "max_episode_steps", None)
        limit = f"; its own limit is {own:,}" if own else ""
        return (
            f"after {self.shared.max_turns:,} turns{limit}: --set max_turns=N sets another number"
        )

    def is_at(self, episode: int, turn: int) -> bool:
        """Exactly this many turns of this episode have been played."""
        return self.counts.number == episode and self.counts.length == turn

    @property
    def can_be_cut(self) -> bool:
        """There are turns to cut off for an update."""
        return self.episode is not None and self.counts.mode == "train" and self.episode.can_be_cut

    def cut(self) -> Trajectory:
        """The turns since the last cut, for an update; the episode goes on."""
        part = self.under_way.cut(self.shown.text)
        part.episode = self.counts.number
        return part

    def _end(self, end: End) -> Ended:
        trajectory = self.under_way.finish(end, self.shown.text if end == "truncated" else None)
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
        self.game.is_broken = True
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

    def _show_state(self) -> None:
        outcome = self.game.outcome
        counts = self.counts
        state = Undrawn(
            env=self.index,
            episode=counts.number,
            turn=counts.length,
            observation=outcome.observation,
            info=outcome.info,
            is_over=outcome.is_over,
        )
        self.shared.spectator.observe_state(state)

    def _show_observation(self) -> None:
        policy = self.shared.policy
        agent = self.shared.agent
        if policy.generation.policy == "score" and not policy.trie_of(self.shown.actions):
            raise EpisodeFault(
                f"{type(agent).__name__}.actions names no action, and the score policy chooses among them"
            )
        if left_out := self.under_way.left_out(*self.shown):
            self.shared.notices.of_left_out(policy.context)
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
