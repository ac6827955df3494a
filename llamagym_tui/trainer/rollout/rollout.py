"""Many environments, one batch: every step is one turn of every live environment.

A training batch starts episodes until enough turns are under way and then lets all of them end, so that every episode
that was started counts and short ones are not favoured. Every conversation is told to a `Spectator`, which passes on
what is watched. While a person has the wheel, a step stands still between replies and actions until they have chosen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from llamagym_tui.config import Mode
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import End, Trajectory
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import choices
from llamagym_tui.game.drawing import drawn, draws
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.environments import EndedEpisode, EnvMaker, Seat
from llamagym_tui.trainer.rollout.spectator import Sketch, Spectator, Told
from llamagym_tui.trainer.rollout.text_stream import TextStream
from llamagym_tui.trainer.rollout.wheel import Wheel, episode_corrected

if TYPE_CHECKING:
    from llamagym_tui.engine.tokens.tokenization import Opening

MOST_COUNTED = 32
"""Actions up to which it is counted how often each was named."""
FEWEST_TOGETHER = 16
"""Environments that are stepped together even if fewer would fill the batch; long episodes make it larger then."""
REMEMBERED = 64
"""Watched episodes of inference mode that can be recalled after their end."""
Stage = Literal["under_way", "waiting", "trained", "inference"]
"""Where an episode stands: `llamagym_tui.protocol.events.TurnInspected` says what each means."""


class _Said(NamedTuple):
    """What is said in a turn."""

    text: str
    replaced: str | None = None
    """The agent's own reply, where a person's stands in its place."""


class Rollout:
    """Environments that are stepped together by one policy."""

    def __init__(
        self,
        agent: AgentBase,
        policy: Policy,
        *,
        n_envs: int,
        max_turns: int,
        batch_turns: int,
        seed: int,
        emit: Callable[[events.Event], None] = lambda event: None,
        greedy: bool = False,
        episode_limit: int | None = None,
    ) -> None:
        """Make the environments; nothing is reset yet.

        Args:
            agent: tells observations and reads replies.
            policy: chooses replies.
            n_envs: environments stepped together.
            max_turns: after which an episode is truncated.
            batch_turns: turns of a training batch, at least.
            seed: of the environments.
            emit: takes the events of what is watched.
            greedy: take the most probable token instead of sampling.
            episode_limit: episodes to end since the run began; no more are started. None: no limit.
        Raises:
            EnvError: an environment cannot be made.
        """
        self.agent, self.policy = agent, policy
        self.max_turns, self.batch_turns = max_turns, batch_turns
        self.greedy, self.episode_limit, self._emit = greedy, episode_limit, emit
        self.spectator = Spectator(self._pass_on)
        self.wheel = Wheel(agent)
        self._drawing = False
        """Whether somebody wants to see the states."""
        self.episodes = 0
        """Episodes ended since the run began."""
        self.env_steps = 0
        """Environment steps since the run began."""
        self.last_reply = ""
        """A reply of the agent's in the last step; empty if there was none."""
        self._said: dict[int, Reply] | None = None
        """The agent's replies by environment, while a step stands still between them and the actions."""
        self._started = 0
        self._mode: Mode = "train"
        self._system_prompt, self._prompt_version = agent.get_system_prompt(), 0
        self._trajectories: list[Trajectory] = []
        self._untrained: deque[Trajectory] = deque(maxlen=REMEMBERED)
        self._batch_turns_done = 0
        self._typical_length = float(max_turns)
        """Turns of an episode, about: how many to start for a batch follows from it."""
        self._seed = seed
        self._seats: list[Seat] = []
        self._make_env = EnvMaker(agent)
        self.resize(n_envs)

    @property
    def mode(self) -> Mode:
        """Mode of the episodes that begin from now on."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "inference":
            # The whole batch goes, not only what is under way: what has ended by now are its shorter episodes.
            self.take_batch()
            self.spectator.forget_batches()
            for seat in self._seats:
                seat.mode = "inference"

    def set_system_prompt(self, text: str, version: int) -> None:
        """Use another system prompt from the next reset on."""
        self._system_prompt, self._prompt_version = text, version

    @property
    def draws(self) -> bool:
        """Whether states can be drawn."""
        return draws(self.agent) or any(seat.env.render_mode == "ansi" for seat in self._seats[:1])

    def set_drawing(self, on: bool) -> None:
        """Draw the watched states from now on, the present one at once, or draw no more."""
        self._drawing = on
        if on:
            self.spectator.sketch_again()

    def _pass_on(self, told: Told) -> None:
        """Emit what is watched, states as drawings where they are wanted."""
        if not isinstance(told, Sketch):
            self._emit(told)
        elif self._drawing and (drawing := self._drawn(told)) is not None:
            self._emit(drawing)

    def _drawn(self, sketch: Sketch) -> events.StateDrawn | None:
        """The drawing of a state; None if there is none: an environment renders only the state that it is in."""
        seat = self._seats[sketch.env] if sketch.env < len(self._seats) else None
        is_there = seat is not None and (seat.number, seat.length) == (sketch.episode, sketch.turn)
        if not is_there and not draws(self.agent):
            return None
        text, marks = drawn(self.agent, seat.env if seat else None, sketch.observation)
        if not text:
            return None
        return events.StateDrawn(episode=sketch.episode, turn=sketch.turn, text=text, marks=list(marks))

    def set_counters(self, *, episodes: int, env_steps: int) -> None:
        """Go on counting where an earlier session ended."""
        self.episodes, self.env_steps, self._started = episodes, env_steps, episodes

    @property
    def live(self) -> int:
        """Episodes under way."""
        return sum(seat.episode is not None for seat in self._seats)

    @property
    def batch_ready(self) -> bool:
        """Whether a training batch is full and all its episodes have ended."""
        return self._batch_turns_done >= self.batch_turns and not self.live

    def take_batch(self) -> list[Trajectory]:
        """The batch's episodes; the next batch begins empty."""
        self.spectator.next_batch()
        batch, self._trajectories, self._batch_turns_done = self._trajectories, [], 0
        return batch

    def recall(self, episode: int) -> tuple[Trajectory, Stage] | None:
        """An episode under way, cut off where it stands, or one that ended and is in no update yet; None: not kept."""
        for seat in self._seats:
            if seat.episode is not None and seat.number == episode:
                return seat.episode.finish("truncated"), "under_way" if seat.mode == "train" else "inference"
        waiting = next((ended for ended in self._trajectories if ended.episode == episode), None)
        if waiting is not None:
            return waiting, "waiting"
        played = next((ended for ended in self._untrained if ended.episode == episode), None)
        return None if played is None else (played, "inference")

    def restart(self) -> None:
        """Drop the batch and every episode under way: what they were sampled from is no more."""
        self.take_batch()
        self.tell_corrections()
        self._said = None
        if self.wheel.env is not None:
            self.let_go("the episodes under way were dropped")
        for seat in self._seats:
            seat.episode = None
        self.spectator.forget(len(self._seats))

    def tell_corrections(self) -> None:
        """Tell the episodes under way in which a person acted, once, as cut off where they stand; none will go on."""
        for seat in self._seats:
            told = self.spectator.told(seat.index) if seat.episode is not None and seat.is_corrected else []
            seat.is_corrected = False
            # A turn that its environment has failed in was not told.
            if any(isinstance(event, events.TurnFinished) and event.replaced is not None for event in told):
                cut_off = events.EpisodeFinished(
                    episode=seat.number, episode_return=seat.episode_return, length=seat.length, end="truncated"
                )
                self._emit(episode_corrected([*told, cut_off]))

    def resize(self, n_envs: int) -> None:
        """Step another number of environments from now on; episodes under way are dropped.

        Raises:
            EnvError: an environment cannot be made; those there are stay.
        """
        more = max(0, n_envs - len(self._seats))
        entropy = [self._seed, self._started] if self._started else self._seed  # none sees its first episodes again
        seeds = np.random.SeedSequence(entropy).generate_state(more)
        for env_seed in seeds:
            self._seats.append(Seat(len(self._seats), self._make_env(), int(env_seed)))
        self.tell_corrections()
        for seat in self._seats[n_envs:]:
            seat.env.close()
        del self._seats[n_envs:]
        self._sampler = Sampler(self.policy, n_envs)
        self.restart()

    def close(self) -> None:
        """Close the environments."""
        for seat in self._seats:
            seat.env.close()

    def begin_episodes(self) -> None:
        """Start episodes where none is under way, as many as the batch needs."""
        for seat in self._seats:
            if seat.episode is not None:
                continue
            if not self._may_start():
                break
            self._reset(seat)

    def step(self) -> list[EndedEpisode]:
        """One turn in every live environment, new episodes started first; the episodes that ended.

        No turn is made while a person at the wheel is awaited; the next call goes on with the same replies.
        """
        if self._said is None:
            self.begin_episodes()
            self._said = self._replies()
        if self.awaits_person or self._said is None:
            return []
        said, self._said = self._said, None
        outcomes = [self._act(self._seats[index], self._settled(index, reply)) for index, reply in said.items()]
        self.keep_wheel_in_view()  # a failure somewhere may be watched from now on, or an episode held
        return [outcome for outcome in outcomes if outcome is not None]

    @property
    def awaits_person(self) -> bool:
        """Whether a step stands still until the person at the wheel has chosen."""
        return self._said is not None and self.wheel.env in self._said and self.wheel.reply is None

    def take_wheel(self) -> None:
        """Let a person act in the watched environment from its next turn on, which is the one that waits, if one does.

        Raises:
            UsageError: what is watched is no play under way.
            EnvError: its actions cannot be taken with keys.
        """
        env = self.spectator.env
        if env is None:
            raise UsageError("What is watched was played already; ] goes back to the play, where w takes the wheel.")
        offered = choices(self.agent, self._seats[env].env.action_space)
        if self.wheel.env is None:
            self.wheel.take(env, offered)
        self._emit(events.WheelTaken(env=env, choices=list(offered)))
        if self._said is not None and self.awaits_person:
            self._await_person(self._seats[env], self._said[env])

    def act(self, episode: int, turn: int, action: int, reasoning: str = "") -> None:
        """Choose the action of the person at the wheel, for the next `step`.

        Raises:
            UsageError: that turn does not wait, or there is no such action.
            ActionParseError: with this sentence the agent would read another action.
        """
        seat = None if self.wheel.env is None else self._seats[self.wheel.env]
        if seat is None or not self.awaits_person or (seat.number, seat.length) != (episode, turn):
            raise UsageError("That turn does not wait for you any more; nothing was done.")
        self.wheel.choose(action, reasoning)

    def let_go(self, reason: str = "") -> None:
        """Let the agent act again, by what it has said if a turn waits.

        Args:
            reason: for people; empty: it was asked for.
        """
        self.wheel.let_go()
        self._emit(events.WheelLetGo(reason=reason))

    def keep_wheel_in_view(self) -> None:
        """Let go of the wheel of an environment that is not watched any more."""
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.let_go("another conversation is watched")

    def _may_start(self) -> bool:
        if self.episode_limit is not None and self.episodes + self.live >= self.episode_limit:
            return False
        if self._mode == "inference":
            return True
        training = [seat for seat in self._seats if seat.episode is not None and seat.mode == "train"]
        if self._batch_turns_done < self.batch_turns and len(training) < FEWEST_TOGETHER:
            return True
        under_way = sum(max(seat.length + 1, self._typical_length) for seat in training)
        return self._batch_turns_done + under_way < self.batch_turns

    def _reset(self, seat: Seat) -> None:
        try:
            observation, _ = seat.env.reset(seed=seat.seed)
        except Exception as error:
            raise EnvError(f"{self.agent.env_id} failed to reset: {type(error).__name__}: {error}.") from error
        seat.seed = None
        seat.episode = Episode(self.policy, self._system_prompt, prompt_version=self._prompt_version)
        seat.number, seat.mode, seat.prompt_version = self._started, self._mode, self._prompt_version
        seat.length, seat.episode_return, seat.parse_failures = 0, 0.0, 0
        seat.is_corrected, seat.knows_last = False, True
        seat.observation = self.agent.format_observation(observation)
        seat.actions = [0] * len(self.agent.action_names) if len(self.agent.action_names) <= MOST_COUNTED else []
        self._started += 1
        self.spectator.tell(
            seat.index,
            events.EpisodeStarted(
                episode=seat.number,
                system_prompt=self._system_prompt,
                prompt_version=self._prompt_version,
                mode=self._mode,
            ),
        )
        self._sketch(seat, observation)
        self._show(seat)

    def _sketch(self, seat: Seat, observation: Any) -> None:
        self.spectator.sketch(Sketch(seat.index, seat.number, seat.length, observation))

    def _show(self, seat: Seat) -> None:
        shown = events.ObservationShown(episode=seat.number, turn=seat.length, text=seat.observation)
        self.spectator.tell(seat.index, shown)

    def _replies(self) -> dict[int, Reply] | None:
        """What the agent says in each live environment, None if there is none; the watched tokens are told."""
        self.last_reply = ""
        live = [index for index, seat in enumerate(self._seats) if seat.episode is not None]
        if not live:
            return None
        prompts = [self._prompt(self._seats[index]) for index in live]
        replies = self._sampler.reply(live, prompts, greedy=self.greedy, on_token=self._streaming(live))
        self.last_reply = self.policy.chat.text(replies[0].ids)
        said = dict(zip(live, replies, strict=True))
        if self.wheel.env in said:
            self._await_person(self._seats[self.wheel.env], said[self.wheel.env])
        return said

    def _prompt(self, seat: Seat) -> list[int]:
        """Ids that the sampler has not seen of a seat's conversation, the new observation last."""
        assert seat.episode is not None
        prompt = seat.episode.observe(seat.observation)
        if not seat.knows_last:
            prompt, seat.knows_last = seat.episode.whole_prompt(), True
        if prompt.restart is not None:
            self._sampler.restart(seat.index, prompt.restart)
        return prompt.ids

    def _await_person(self, seat: Seat, reply: Reply) -> None:
        text = self.policy.chat.text(reply.ids)
        name = self._name_of_action_in(text)
        self._emit(events.ActionAwaited(episode=seat.number, turn=seat.length, reply=text, action_name=name))

    def _name_of_action_in(self, text: str) -> str:
        reading = self.agent.read(text)
        return "" if reading.failed else self.agent.action_name(reading.action)

    def _settled(self, index: int, reply: Reply) -> _Said:
        """Enter what is said in a turn into its episode: the agent's reply, or the person's in its place."""
        seat = self._seats[index]
        assert seat.episode is not None
        if index != self.wheel.env:
            return _Said(seat.episode.reply(reply))
        text = self.wheel.taken_reply()
        seat.episode.add_untrained_reply(text, value=reply.value)
        seat.is_corrected, seat.knows_last = True, False
        return _Said(text, replaced=self.policy.chat.text(reply.ids))

    def standpoint(self) -> Standpoint | None:
        """Where the watched episode waits for a reply; None if none is under way, or it was said already."""
        env = self.spectator.env
        seat = None if env is None else self._seats[env]
        if seat is None or seat.episode is None or self._said is not None:
            return None
        return Standpoint(seat.index, seat.number, seat.length, seat.episode.prompt_for(seat.observation))

    def _streaming(self, live: list[int]) -> Callable[[int, int], None] | None:
        """What tells the watched reply's text as its tokens come; None if none of the live seats is watched, or a
        person may reply in its place."""
        env = self.spectator.env
        if env is None or env not in live or env == self.wheel.env:
            return None
        watched, at, stream = self._seats[env], live.index(env), TextStream(self.policy.chat.text)

        def on_token(index: int, token: int) -> None:
            if index == at and (text := stream.push(token)):
                self._emit(events.TokensStreamed(episode=watched.number, turn=watched.length, text=text))

        return on_token

    def _act(self, seat: Seat, said: _Said) -> EndedEpisode | None:
        """Step one environment by a reply; what is counted if that ended its episode."""
        assert seat.episode is not None
        is_own = said.replaced is None
        reading = self.agent.read(said.text)
        action = self.agent.fallback_action if reading.failed else reading.action
        try:
            observation, reward, terminated, truncated, _ = seat.env.step(action)
        except Exception as error:
            raise EnvError(
                f"{self.agent.env_id} refused action {action!r}: {type(error).__name__}: {error}; "
                f"see {type(self.agent).__name__}.extract_action."
            ) from error
        self.env_steps += 1
        seat.episode.reward(float(reward), parse_failed=reading.failed)
        seat.episode_return += float(reward)
        seat.parse_failures += reading.failed
        if is_own and not reading.failed and isinstance(action, int) and 0 <= action < len(seat.actions):
            seat.actions[action] += 1
        self.spectator.tell(
            seat.index,
            events.TurnFinished(
                episode=seat.number,
                turn=seat.length,
                reply=said.text,
                action=action if isinstance(action, int | float | str) else str(action),
                action_name=self.agent.action_name(action),
                how=reading.how if is_own else "human",
                reward=float(reward),
                replaced=said.replaced,
                replaced_action="" if said.replaced is None else self._name_of_action_in(said.replaced),
            ),
        )
        seat.length += 1
        seat.observation = self.agent.format_observation(observation)
        self._sketch(seat, observation)
        if terminated:
            return self._end(seat, "terminated")
        if truncated or seat.length >= self.max_turns:
            return self._end(seat, "truncated")
        self._show(seat)
        return None

    def _end(self, seat: Seat, end: End) -> EndedEpisode:
        assert seat.episode is not None
        trajectory = seat.episode.finish(end, seat.observation if end == "truncated" else None)
        trajectory.episode, seat.episode = seat.number, None
        self.episodes += 1
        self._typical_length += 0.1 * (seat.length - self._typical_length)
        own_turns = sum(turn.is_trained for turn in trajectory.turns)
        if seat.mode == "train" and own_turns:
            self._trajectories.append(trajectory)
            self._batch_turns_done += own_turns
        elif seat.index == self.spectator.env:
            self._untrained.append(trajectory)
        finished = events.EpisodeFinished(
            episode=seat.number, episode_return=seat.episode_return, length=seat.length, end=end
        )
        self.spectator.tell(seat.index, finished)
        if seat.is_corrected:
            self._emit(episode_corrected(self.spectator.told(seat.index)))
        return seat.ended(trajectory.policy_version)


class Standpoint(NamedTuple):
    """Where an episode waits for a reply."""

    env: int
    episode: int
    turn: int
    prompt: Opening
    """All ids before the reply."""
