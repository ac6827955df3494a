"""Many environments, one batch: every step is one turn of every live environment.

A training batch starts episodes until enough turns are under way and then lets all of them end, so that every episode
that was started counts and short ones are not favoured. A `Spectator` observes every episode and emits what is watched.
While a person has the wheel, a step waits between replies and actions until they have chosen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from llamagym_tui.config import Mode
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Lookahead, Reply, Sampler
from llamagym_tui.engine.policy.trajectory import End, Trajectory
from llamagym_tui.errors import MOST_WORDS, PromptTooLongError, UsageError
from llamagym_tui.game.actions import ActionReading
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import choices
from llamagym_tui.game.drawing import drawn, draws
from llamagym_tui.game.environment import EnvMaker
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.environments import LARGEST_RETURN, EndedEpisode, EnvSlot, episode_seed
from llamagym_tui.trainer.rollout.failures import RAISED, EpisodeFault, Failures
from llamagym_tui.trainer.rollout.saved_rollout import SavedEpisode, SavedRollout, saved_episode
from llamagym_tui.trainer.rollout.spectator import Item, Spectator, Undrawn
from llamagym_tui.trainer.rollout.text_stream import TextStream
from llamagym_tui.trainer.rollout.wheel import Wheel, episode_corrected

if TYPE_CHECKING:
    import gymnasium

    from llamagym_tui.engine.tokens.tokenization import Opening

MOST_COUNTED = 32
"""Actions up to which it is counted how often each was named."""
FEWEST_TOGETHER = 16
"""Environments that are stepped together even if fewer would fill the batch; long episodes make it larger then."""
FEWEST_READ = 50
"""Replies of ended episodes after which it is judged whether most of them name no action."""
REMEMBERED = 64
"""Watched episodes of inference mode that can be recalled after their end."""
Stage = Literal["under_way", "waiting", "trained", "inference"]
"""Where an episode stands; see `llamagym_tui.protocol.events.TurnInspected`."""


class _UsedReply(NamedTuple):
    """The reply that a turn is played by."""

    text: str
    replaced: str | None = None
    """The agent's own reply, if a person's is used instead."""


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
        max_failures: int = 32,
    ) -> None:
        """Make the environments; nothing is reset yet.

        Args:
            max_turns: after which an episode is truncated.
            batch_turns: turns of a training batch, at least.
            seed: of the run, from which each episode's own follows.
            emit: receives the events of what is watched, and warnings.
            greedy: take the most probable token instead of sampling.
            episode_limit: episodes to end since the run began. None: no limit.
            max_failures: dropped episodes in a row that end the run.
        Raises:
            EnvError: an environment cannot be made.
        """
        self.agent, self.policy = agent, policy
        self.max_turns, self.batch_turns = max_turns, batch_turns
        self.greedy, self.episode_limit, self._emit = greedy, episode_limit, emit
        self.spectator = Spectator(self._emit_watched)
        self.wheel = Wheel(agent, emit)
        self._warn = lambda sentence: emit(events.WarningRaised(message=sentence))
        self.failures = Failures(max_failures, self._warn)
        self._cuts: set[str] = set()
        """Reasons for cutting episodes off that were reported."""
        self._known_fault = agent.reading_fault
        self._read, self._unread, self._example = 0, 0, ""
        """Turns of ended episodes, those among them whose reply named no action, and such a reply."""
        self._warned_of_unread = False
        self._drawing = False
        """Whether the watched states are wanted as drawings."""
        self.episodes = 0
        """Episodes ended since the run began."""
        self.env_steps = 0
        """Environment steps since the run began."""
        self.last_reply = ""
        """A reply of the agent's in the last step; empty if there was none."""
        self._replies: dict[int, Reply] | None = None
        """The agent's replies by environment, while a step waits between them and the actions."""
        self._started = 0
        self._mode: Mode = "train"
        self.system_prompt, self.prompt_version = agent.get_system_prompt(), 0
        self._trajectories: list[Trajectory] = []
        self._untrained: deque[Trajectory] = deque(maxlen=REMEMBERED)
        self._batch_turns_done = 0
        self._typical_length = float(max_turns)
        """Turns of an episode, about: how many to start for a batch follows from it."""
        self._seed = seed
        self.slots: list[EnvSlot] = []
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
            for slot in self.slots:
                slot.mode = "inference"

    def set_system_prompt(self, text: str, version: int) -> None:
        """From the next reset on."""
        self.system_prompt, self.prompt_version = text, version

    @property
    def draws(self) -> bool:
        """Whether states can be drawn."""
        return draws(self.agent) or any(slot.env.render_mode == "ansi" for slot in self.slots[:1])

    def set_drawing(self, on: bool) -> None:
        """Draw the watched states from now on, the present one at once, or draw no more."""
        self._drawing = on
        if on:
            self.spectator.emit_state()

    def _emit_watched(self, item: Item) -> None:
        """Emit an event, or a state as a drawing if those are wanted."""
        if not isinstance(item, Undrawn):
            self._emit(item)
        elif self._drawing and (drawing := self._drawn(item)) is not None:
            self._emit(drawing)

    def _drawn(self, state: Undrawn) -> events.StateDrawn | None:
        """The drawing of a state; None if there is none: an environment renders only the state that it is in."""
        slot = self.slots[state.env] if state.env < len(self.slots) else None
        is_there = slot is not None and (slot.number, slot.length) == (state.episode, state.turn)
        if not is_there and not draws(self.agent):
            return None
        text, marks = drawn(self.agent, slot.env if slot else None, state.observation)
        if not text:
            return None
        return events.StateDrawn(episode=state.episode, turn=state.turn, text=text, marks=list(marks))

    def set_counters(self, *, episodes: int, env_steps: int, dropped: int = 0) -> None:
        """Go on counting where an earlier session ended."""
        self.failures.dropped = dropped
        self.episodes, self.env_steps, self._started = episodes, env_steps, episodes

    @property
    def live(self) -> int:
        """Number of episodes under way."""
        return sum(slot.episode is not None for slot in self.slots)

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
        for slot in self.slots:
            if slot.episode is not None and slot.number == episode:
                return slot.episode.finish("truncated"), "under_way" if slot.mode == "train" else "inference"
        ended: list[tuple[Trajectory, Stage]] = [(each, "waiting") for each in self._trajectories]
        ended += [(each, "inference") for each in self._untrained]
        return next((found for found in ended if found[0].episode == episode), None)

    def restart(self) -> None:
        """Drop the batch and every episode under way: what they were sampled from is no more."""
        self.take_batch()
        self.emit_corrections()
        self._replies = None
        if self.wheel.env is not None:
            self.wheel.let_go("the episodes under way were dropped")
        for slot in self.slots:
            slot.episode = None
        self.spectator.reset(len(self.slots))

    def forget_caches(self) -> None:
        """Compute every conversation from its beginning when it goes on, as a resumed run does."""
        self._sampler.forget()
        for slot in self.slots:
            slot.knows_last = False

    def state(self) -> SavedRollout:
        """What a rollout needs to go on from here; of a person's turn that waits, not the agent's reply."""
        live = [slot for slot in self.slots if slot.episode is not None]
        return SavedRollout(
            n_envs=len(self.slots),
            mode=self._mode,
            started=self._started,
            typical_length=self._typical_length,
            lookahead=self._sampler.lookahead,
            trajectories=self._trajectories,
            episodes=[saved_episode(slot, self.spectator.events_of(slot.index)) for slot in live],
        )

    def restore(self, state: Any) -> int:
        """Go on from a state; the number of episodes under way that cannot be repeated and begin anew.

        The batch is taken up if it has the same mode and as many environments.

        Raises:
            msgspec.ValidationError: it is not of this version.
        """
        saved = msgspec.convert(state, SavedRollout)
        now = self._mode, self.system_prompt, self.prompt_version, self.episodes, self.env_steps
        emit, self._emit = self._emit, lambda event: None
        lost = 0
        if (saved.n_envs, saved.mode) == (len(self.slots), self._mode):
            lost = sum(not self._repeats(self.slots[each.env], each) for each in saved.episodes)
            self._typical_length, self._sampler.lookahead = saved.typical_length, Lookahead(*saved.lookahead)
            self._trajectories = list(saved.trajectories)
            self._batch_turns_done = sum(each.own_turns for each in self._trajectories)
        self._mode, self.system_prompt, self.prompt_version, self.episodes, self.env_steps = now
        self._started, self._emit = saved.started, emit
        self.forget_caches()
        if self.live:
            self.spectator.watch(self.spectator.env or 0)
        return lost

    def _repeats(self, slot: EnvSlot, saved: SavedEpisode) -> bool:
        """Play an episode again by its replies; whether it came to where it stood. If not, none is under way."""
        self._started, self._mode = saved.number, saved.mode
        self.system_prompt, self.prompt_version = saved.system_prompt, saved.prompt_version
        try:
            self._reset(slot)
            for reply, replaced in saved.turns(self.policy.chat.end_ids):
                if slot.episode is None:
                    return False
                slot.episode.observe(slot.observation)
                if replaced is None:
                    used = _UsedReply(slot.episode.reply(reply))
                else:
                    text = self.policy.chat.text(reply.ids)
                    used = _UsedReply(slot.episode.add_untrained_reply(text, value=reply.value), replaced)
                    slot.is_corrected = True
                self._act(slot, used)
            if slot.episode is not None and saved_episode(slot, self.spectator.events_of(slot.index)) == saved:
                return True
        except EpisodeFault:
            slot.is_broken = True
        slot.episode = None
        return False

    def emit_corrections(self) -> None:
        """Emit the episodes under way in which a person acted, once, as cut off where they stand; none will go on."""
        for slot in self.slots:
            if slot.is_corrected:
                self._emit_correction(slot)
                slot.episode = None

    def _emit_correction(self, slot: EnvSlot) -> None:
        history = self.spectator.events_of(slot.index) if slot.episode is not None and slot.is_corrected else []
        slot.is_corrected = False
        # A turn that its environment has failed in has no event.
        if any(isinstance(event, events.TurnFinished) and event.replaced is not None for event in history):
            cut_off = events.EpisodeFinished(
                episode=slot.number, episode_return=slot.episode_return, length=slot.length, end="truncated"
            )
            self._emit(episode_corrected([*history, cut_off]))

    def resize(self, n_envs: int) -> None:
        """Step another number of environments from now on; episodes under way are dropped.

        Raises:
            EnvError: an environment cannot be made; all is as it was.
        """
        more: list[EnvSlot] = []
        with ExitStack() as undone:
            for index in range(len(self.slots), n_envs):
                more.append(EnvSlot(index, self._make_env()))
                undone.callback(more[-1].env.close)
            undone.pop_all()
        self.slots += more
        self.emit_corrections()
        for slot in self.slots[n_envs:]:
            slot.close()
        del self.slots[n_envs:]
        self._sampler = Sampler(self.policy, n_envs)
        self.restart()

    def close(self) -> None:
        for slot in self.slots:
            slot.close()

    def begin_episodes(self) -> None:
        """Start episodes where none is under way, as many as the batch needs."""
        for slot in self.slots:
            if slot.episode is not None:
                continue
            if not self._may_start():
                break
            try:
                self._reset(slot)
            except EpisodeFault as fault:
                self._drop(slot, fault)

    def step(self) -> list[EndedEpisode]:
        """One turn in every live environment, new episodes started first; the episodes that ended.

        No turn is made while a person at the wheel is awaited; the next call goes on with the same replies.

        Raises:
            EnvError: too many episodes in a row were dropped.
            PromptTooLongError: the model cannot even read a first prompt.
        """
        if self._replies is None:
            self.begin_episodes()
            self._replies = self._sample_replies()
        if self.awaits_person or self._replies is None:
            return []
        replies, self._replies = self._replies, None
        outcomes = [self._outcome(self.slots[index], self._recorded(index, reply)) for index, reply in replies.items()]
        self.keep_wheel_in_view()  # a failure somewhere may be watched from now on, or an episode held
        return [outcome for outcome in outcomes if outcome is not None]

    @property
    def awaits_person(self) -> bool:
        """Whether a step waits until the person at the wheel has chosen."""
        return self._replies is not None and self.wheel.env in self._replies and self.wheel.reply is None

    def take_wheel(self) -> None:
        """Let a person act in the watched environment from its next turn on, which is the one that waits, if one does.

        Raises:
            UsageError: what is watched is no play under way.
            EnvError: its actions cannot be taken with keys.
        """
        env = self.spectator.env
        if env is None:
            raise UsageError("What is watched was played already; ] goes back to the play, where w takes the wheel.")
        offered = choices(self.agent, self.slots[env].env.action_space)
        self.wheel.take(env, offered)
        if self._replies is not None and self.awaits_person:
            self._await_person(self.slots[env], self._replies[env])

    def act(self, episode: int, turn: int, action: int, reasoning: str = "") -> None:
        """Choose the action of the person at the wheel, for the next `step`.

        Raises:
            UsageError: that turn does not wait, or there is no such action.
            ActionParseError: with this sentence the agent would read another action.
        """
        slot = None if self.wheel.env is None else self.slots[self.wheel.env]
        if slot is None or not self.awaits_person or (slot.number, slot.length) != (episode, turn):
            raise UsageError("That turn does not wait for you any more; nothing was done.")
        self.wheel.choose(action, reasoning)

    def keep_wheel_in_view(self) -> None:
        """Let go of the wheel of an environment that is not watched any more."""
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.wheel.let_go("another conversation is watched")

    def _may_start(self) -> bool:
        if self.episode_limit is not None and self.episodes + self.live >= self.episode_limit:
            return False
        if self._mode == "inference":
            return True
        training = [slot for slot in self.slots if slot.episode is not None and slot.mode == "train"]
        if self._batch_turns_done < self.batch_turns and len(training) < FEWEST_TOGETHER:
            return True
        under_way = sum(max(slot.length + 1, self._typical_length) for slot in training)
        return self._batch_turns_done + under_way < self.batch_turns

    def _reset(self, slot: EnvSlot) -> None:
        slot.number, slot.mode, slot.prompt_version = self._started, self._mode, self.prompt_version
        slot.length, slot.episode_return, slot.parse_failures = 0, 0.0, 0
        slot.is_corrected, slot.knows_last = False, True
        self._started += 1
        try:
            if slot.is_broken:
                slot.close()
                slot.env, slot.is_broken = self._make_env(), False
            observation, _ = slot.env.reset(seed=episode_seed(self._seed, slot.number))
        except RAISED as error:
            raise EpisodeFault(f"{self.agent.env_id} failed to reset", error) from error
        slot.observation = self._formatted(observation)
        slot.episode = Episode(self.policy, self.system_prompt, prompt_version=self.prompt_version)
        self._require_first_fit(slot)
        slot.actions = [0] * len(self.agent.action_names) if len(self.agent.action_names) <= MOST_COUNTED else []
        self.spectator.observe(
            slot.index,
            events.EpisodeStarted(
                episode=slot.number,
                system_prompt=self.system_prompt,
                prompt_version=self.prompt_version,
                mode=self._mode,
            ),
        )
        self._show_state(slot, observation)
        self._show_observation(slot)

    def _require_first_fit(self, slot: EnvSlot) -> None:
        assert slot.episode is not None
        try:
            slot.episode.require_fit(slot.observation)
        except PromptTooLongError as error:
            slot.episode = None
            raise PromptTooLongError(
                f"The system prompt and one observation of {self.agent.env_id} are too long: {error}; shorten them, or "
                "take a model with a longer context."
            ) from error

    def _cut(self, slot: EnvSlot) -> str:
        """Why an episode cannot go on although its environment could; empty: it can."""
        assert slot.episode is not None
        try:
            slot.episode.require_fit(slot.observation)
        except PromptTooLongError as error:
            return f"once a conversation is too long: {error}"
        if slot.length < self.max_turns:
            return ""
        own = getattr(slot.env.spec, "max_episode_steps", None)
        limit = f"; its own limit is {own:,}" if own else ""
        return f"after {self.max_turns:,} turns{limit}: --set max_turns=N sets another number"

    def _show_state(self, slot: EnvSlot, observation: Any) -> None:
        self.spectator.observe_state(Undrawn(slot.index, slot.number, slot.length, observation))

    def _show_observation(self, slot: EnvSlot) -> None:
        shown = events.ObservationShown(episode=slot.number, turn=slot.length, text=slot.observation)
        self.spectator.observe(slot.index, shown)

    def _sample_replies(self) -> dict[int, Reply] | None:
        """The agent's reply in each live environment, None if there is none; the watched tokens are streamed."""
        self.last_reply = ""
        live = [index for index, slot in enumerate(self.slots) if slot.episode is not None]
        if not live:
            return None
        prompts = [self._prompt(self.slots[index]) for index in live]
        replies = self._sampler.reply(live, prompts, greedy=self.greedy, on_token=self._streaming(live))
        self.last_reply = self.policy.chat.text(replies[0].ids)
        by_env = dict(zip(live, replies, strict=True))
        if self.wheel.env in by_env:
            self._await_person(self.slots[self.wheel.env], by_env[self.wheel.env])
        return by_env

    def _prompt(self, slot: EnvSlot) -> list[int]:
        """Ids that the sampler has not seen of a slot's conversation, the new observation last."""
        assert slot.episode is not None
        prompt = slot.episode.observe(slot.observation)
        if not slot.knows_last:
            prompt, slot.knows_last = slot.episode.whole_prompt(), True
        if prompt.restart is not None:
            self._sampler.restart(slot.index, prompt.restart)
        return prompt.ids

    def _await_person(self, slot: EnvSlot, reply: Reply) -> None:
        text = self.policy.chat.text(reply.ids)
        name = self._name_of_action_in(text)
        self._emit(events.ActionAwaited(episode=slot.number, turn=slot.length, reply=text, action_name=name))

    def _name_of_action_in(self, text: str) -> str:
        reading = self.agent.read(text)
        return "" if reading.failed else self.agent.action_name(reading.action)

    def _recorded(self, index: int, reply: Reply) -> _UsedReply:
        """Add the reply that is used to the episode: the agent's, or the person's instead."""
        slot = self.slots[index]
        assert slot.episode is not None
        if index != self.wheel.env:
            return _UsedReply(slot.episode.reply(reply))
        text = self.wheel.take_reply()
        slot.episode.add_untrained_reply(text, value=reply.value)
        slot.is_corrected, slot.knows_last = True, False
        return _UsedReply(text, replaced=self.policy.chat.text(reply.ids))

    def pending_prompt(self) -> PendingPrompt | None:
        """Where the watched episode waits for a reply; None if none is under way, or it has its reply already."""
        env = self.spectator.env
        slot = None if env is None else self.slots[env]
        if slot is None or slot.episode is None or self._replies is not None:
            return None
        return PendingPrompt(slot.index, slot.number, slot.length, slot.episode.prompt_for(slot.observation))

    def _streaming(self, live: list[int]) -> Callable[[int, int], None] | None:
        """Streams the watched reply's text as its tokens come; None if no live environment is watched, or a person
        may reply there."""
        env = self.spectator.env
        if env is None or env not in live or env == self.wheel.env:
            return None
        watched, at, stream = self.slots[env], live.index(env), TextStream(self.policy.chat.text)

        def on_token(index: int, token: int) -> None:
            if index == at and (text := stream.push(token)):
                self._emit(events.TokensStreamed(episode=watched.number, turn=watched.length, text=text))

        return on_token

    def _outcome(self, slot: EnvSlot, used: _UsedReply) -> EndedEpisode | None:
        """`_act`, or the episode dropped if it cannot go on."""
        try:
            return self._act(slot, used)
        except EpisodeFault as fault:
            self._drop(slot, fault)
            return None

    def _drop(self, slot: EnvSlot, fault: EpisodeFault) -> None:
        """Leave an episode out; only its number is used, and its environment is made anew before the next one."""
        self._emit_correction(slot)
        slot.episode, slot.is_broken = None, True
        self.spectator.observe(slot.index, events.EpisodeDropped(episode=slot.number, reason=str(fault)))
        where = f"Environment {slot.index + 1:,}, episode {slot.number:,}, step {slot.length + 1:,}"
        self.failures.add(slot.number, where, fault)

    def _formatted(self, observation: Any) -> str:
        name = f"{type(self.agent).__name__}.format_observation"
        try:
            text = self.agent.format_observation(observation)
        except RAISED as error:
            raise EpisodeFault(f"{name} failed", error) from error
        if not isinstance(text, str):
            raise EpisodeFault(f"{name} returned {type(text).__name__}, which is no text")
        return text if text.isascii() else text.encode(errors="replace").decode()  # lone surrogates are no characters

    def _stepped(self, slot: EnvSlot, action: Any, reading: ActionReading) -> tuple[Any, float, bool, bool]:
        """Observation, reward, terminated and truncated of an environment's step."""
        env_id = self.agent.env_id
        try:
            observation, reward, terminated, truncated, _ = slot.env.step(action)
            earned, ends = float(reward), (bool(terminated), bool(truncated))
        except RAISED as error:
            source = "the fallback action" if reading.failed else f"action {str(action)[:MOST_WORDS]}"
            if not _is_in(slot.env.action_space, action):
                source += f", which is not in {slot.env.action_space}"
            raise EpisodeFault(f"{env_id} failed on {source}", error) from error
        self.env_steps += 1
        if not abs(slot.episode_return + earned) <= LARGEST_RETURN:
            raise EpisodeFault(
                f"the reward of {env_id} is {earned:g}; it has to be a finite number, and no return beyond "
                f"{LARGEST_RETURN:.0e}"
            )
        return observation, earned, *ends

    def _act(self, slot: EnvSlot, used: _UsedReply) -> EndedEpisode | None:
        """Step one environment by a reply; what is counted if that ended its episode."""
        assert slot.episode is not None
        is_own = used.replaced is None
        reading = self.agent.read(used.text)
        if self.agent.reading_fault != self._known_fault:
            self._known_fault = self.agent.reading_fault
            self._warn(self._known_fault)
        if reading.failed:
            self._example = used.text
        action = self.agent.fallback_action if reading.failed else reading.action
        observation, reward, terminated, truncated = self._stepped(slot, action, reading)
        text = self._formatted(observation)
        slot.episode.reward(reward, parse_failed=reading.failed)
        slot.episode_return += reward
        slot.parse_failures += reading.failed
        if is_own and not reading.failed and isinstance(action, int) and 0 <= action < len(slot.actions):
            slot.actions[action] += 1
        self.spectator.observe(
            slot.index,
            events.TurnFinished(
                episode=slot.number,
                turn=slot.length,
                reply=used.text,
                action=shown_action(action),
                action_name=self.agent.action_name(action),
                how=reading.how if is_own else "human",
                reward=reward,
                replaced=used.replaced,
                replaced_action="" if used.replaced is None else self._name_of_action_in(used.replaced),
            ),
        )
        slot.length += 1
        slot.observation = text
        self._show_state(slot, observation)
        if terminated:
            return self._end(slot, "terminated")
        if truncated:
            return self._end(slot, "truncated")
        if why := self._cut(slot):
            if (key := why.partition(":")[0]) not in self._cuts:
                self._cuts.add(key)
                self._warn(f"Episodes of {self.agent.env_id} are cut off {why}. They count as truncated.")
            return self._end(slot, "truncated")
        self._show_observation(slot)
        return None

    def _warn_of_unread(self, slot: EnvSlot) -> None:
        """Once, after an episode, where most replies so far name no action."""
        self._read, self._unread = self._read + slot.length, self._unread + slot.parse_failures
        if self._read >= FEWEST_READ and 2 * self._unread > self._read and not self._warned_of_unread:
            self._warned_of_unread = True
            self._warn(
                f"{self._unread / self._read:.0%} of the first {self._read:,} replies name no action, for example "
                f"{self._example[:MOST_WORDS]!r}; see the system prompt and {type(self.agent).__name__}.extract_action."
            )

    def _end(self, slot: EnvSlot, end: End) -> EndedEpisode:
        assert slot.episode is not None
        trajectory = slot.episode.finish(end, slot.observation if end == "truncated" else None)
        trajectory.episode, slot.episode, slot.is_truncated = slot.number, None, end == "truncated"
        self.episodes += 1
        self._warn_of_unread(slot)
        self._typical_length += 0.1 * (slot.length - self._typical_length)
        if slot.mode == "train" and trajectory.own_turns:
            self._trajectories.append(trajectory)
            self._batch_turns_done += trajectory.own_turns
        elif slot.index == self.spectator.env:
            self._untrained.append(trajectory)
        finished = events.EpisodeFinished(
            episode=slot.number, episode_return=slot.episode_return, length=slot.length, end=end
        )
        self.spectator.observe(slot.index, finished)
        if slot.is_corrected:
            self._emit(episode_corrected(self.spectator.events_of(slot.index)))
        return slot.ended(trajectory.policy_version)


def shown_action(action: Any) -> int | float | str:
    """An action as its event has it: a number that every reader of JSON can hold, or its text."""
    is_plain = type(action) in (int, float) and abs(action) < 2**53
    return action if is_plain else str(action)


def _is_in(space: gymnasium.Space[Any], action: Any) -> bool:
    try:
        return space.contains(action)
    except RAISED:
        return False


class PendingPrompt(NamedTuple):
    """Where an episode waits for a reply."""

    env: int
    episode: int
    turn: int
    prompt: Opening
    """All ids before the reply."""
