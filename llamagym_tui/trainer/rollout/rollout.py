"""Many environments, one batch: every step is one turn of every live environment.

A training batch starts episodes until enough turns are under way and then lets all of them end, so that every episode
that was started counts and short ones are not favoured; or it cuts them off, and they go on in the next batch. A
`Spectator` observes every episode and emits what is watched. While a person acts in an environment, a step waits
between replies and actions until they have chosen.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import OfferedAction, choices
from llamagym_tui.game.drawing import draws
from llamagym_tui.game.environment import EnvMaker, drawn_wording, episode_seed, turn_limit
from llamagym_tui.game.game import EpisodeFault, Game
from llamagym_tui.game.observed import names_by_turn
from llamagym_tui.protocol import events
from llamagym_tui.settings import MAX_FAILURES, Mode
from llamagym_tui.trainer.rollout.endpoint_policy import sampler_of
from llamagym_tui.trainer.rollout.env_slot import EnvSlot, Move, named_action
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import Failures, Notices
from llamagym_tui.trainer.rollout.opponents import Opponent
from llamagym_tui.trainer.rollout.spectator import Spectator, Wheel, episode_corrected

FIRST_LENGTH = 100
"""Turns of an episode, at most, as long as none has ended."""
FEWEST_TOGETHER = 16
"""Environments that are stepped together even if fewer would fill the batch; long episodes make it larger then."""
REMEMBERED = 64
"""Watched episodes of inference mode that can be recalled after their end."""


class PendingPrompt(NamedTuple):
    """Where an episode waits for a reply."""

    env: int
    episode: int
    turn: int
    prompt: Opening
    """All ids before the reply."""
    actions: tuple[str, ...] | None
    """Names of those that are admissible. None: those of every turn."""


class Rollout:
    def __init__(
        self,
        agent: AgentBase,
        policy: Policy,
        *,
        n_envs: int,
        max_turns: int | None,
        batch_turns: int,
        cuts_episodes: bool = False,
        group_size: int = 1,
        seed: int,
        emit: Callable[[events.Event], None] = lambda event: None,
        greedy: bool = False,
        episode_limit: int | None = None,
        max_failures: int = MAX_FAILURES,
        ranks: Ranks = ALONE,
        opponent: Opponent | None = None,
    ) -> None:
        """Make the environments; nothing is reset yet.

        Args:
            max_turns: after which an episode is truncated. None: the environment's own limit.
            batch_turns: turns of a training batch, at least, of all `ranks` together.
            cuts_episodes: a full batch cuts off the episodes under way, where no prompt has earlier turns.
            group_size: episodes that are reset to the same seed, and are in the same batch.
            seed: of the run, from which each episode's own follows.
            emit: receives the events of what is watched, and warnings.
            episode_limit: episodes to end since the run began. None: no limit.
            max_failures: dropped episodes in a row that end the run.
            ranks: this one and those that play other environments; their episodes have numbers in turn.
            opponent: the other player, where that is a policy.
        Raises:
            EnvError: an environment cannot be made.
        """
        self.agent = agent
        self.policy = policy
        self.ranks = ranks
        self.seed = seed
        self.opponent = opponent
        self.batch_turns = batch_turns
        self.cuts_episodes = cuts_episodes
        self.greedy = greedy
        self.episode_limit = episode_limit
        self.emit = emit
        self.spectator = Spectator(emit)
        self.wheel = Wheel(agent, emit)
        self.failures = Failures(max_failures, self._warn)
        self.notices = Notices(agent, self._warn)
        self.is_drawing = False
        """Somebody wants drawings of the watched states."""
        self.episodes = 0
        """Episodes ended since the run began."""
        self.env_steps = 0
        """Environment steps since the run began."""
        self.started = 0
        """Number of the next episode."""
        self.wording: int | None = 0
        """The agent's wording of the episodes that begin from now on. None: each draws one, and never the last."""
        self.system_prompt = agent.get_system_prompt()
        """The system prompt of the episodes that begin from now on."""
        self.prompt_version = 0
        self._group_size = group_size
        self._mode: Mode = "train"
        self._make_env = EnvMaker(agent)
        self._replies: dict[int, Reply] | None = None
        """The agent's replies by environment, while a step waits between them and the actions."""
        self._sampler = sampler_of(policy)
        self._batch = BatchUnderWay()
        self.slots: list[EnvSlot] = []
        self.resize(n_envs)
        self.max_turns = max_turns or turn_limit(self.slots[0].game.env)
        self._batch.typical_length = min(self.max_turns, FIRST_LENGTH)

    def _warn(self, sentence: str) -> None:
        self.emit(events.WarningRaised(message=sentence))

    @property
    def mode(self) -> Mode:
        """Mode of the episodes that begin from now on."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        self._begin_group()
        if mode == "inference":
            # The whole batch goes, not only what is under way: what has ended by now are its shorter episodes.
            self._batch.take()
            for slot in self._live:
                slot.counts.mode = "inference"

    def set_system_prompt(self, text: str, version: int) -> None:
        """Use another system prompt from the next reset on."""
        self.system_prompt = text
        self.prompt_version = version

    @property
    def draws(self) -> bool:
        """The agent or the environments can draw states."""
        return draws(self.agent) or self.slots[0].game.env.render_mode == "ansi"

    def set_drawing(self, on: bool) -> None:
        """Draw the watched states from now on, the present one at once, or draw no more."""
        self.is_drawing = on
        self.slots[self.spectator.env].draw()

    def watch(self, env: int) -> None:
        """Stream an environment from now on; environments are counted in a circle."""
        self.spectator.watch(env)
        self.slots[self.spectator.env].draw()
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.wheel.let_go("another conversation is watched")

    def set_counters(
        self, *, episodes: int, env_steps: int, started: int = 0, dropped: int = 0
    ) -> None:
        """Go on counting where an earlier session ended."""
        self.failures.dropped = dropped
        self.episodes = episodes
        self.env_steps = env_steps
        self.started = max(started, episodes)
        self._begin_group()

    def group_of(self, number: int) -> int:
        """The number of the episodes that share a seed with this one; one rank plays all of them."""
        nth, rank = divmod(number, self.ranks.size)
        return nth // self.group_size * self.ranks.size + rank

    @property
    def group_size(self) -> int:
        """Episodes that are reset to the same seed, and are in the same batch; another number drops the batch."""
        return self._group_size

    @group_size.setter
    def group_size(self, size: int) -> None:
        if size != self._group_size:
            self._group_size = size
            self.restart()

    @property
    def _live(self) -> list[EnvSlot]:
        return [slot for slot in self.slots if slot.episode is not None]

    @property
    def live(self) -> int:
        """The number of episodes under way."""
        return len(self._live)

    @property
    def batch_ready(self) -> bool:
        """The training batch is full, and its episodes have ended or can be cut."""
        cuttable = self._cuttable
        turns = self._batch.turns + sum(slot.under_way.own_turns for slot in cuttable)
        if turns < self.ranks.part(self.batch_turns) or self._missing_of_group:
            return False
        # Episodes of train mode that cannot be cut are awaited; where nothing can be cut, all episodes are.
        awaited = [slot for slot in self._live if slot.is_training or not cuttable]
        return len(cuttable) == len(awaited)

    @property
    def batch_progress(self) -> tuple[int, int]:
        """Turns of this rank's training batch that were played, and all that it is to have."""
        under_way = [slot.under_way.own_turns for slot in self.slots if slot.is_training]
        wanted = self.ranks.part(self.batch_turns)
        return min(self._batch.turns + sum(under_way), wanted), wanted

    @property
    def _cuttable(self) -> list[EnvSlot]:
        return [slot for slot in self.slots if self.cuts_episodes and slot.can_be_cut]

    def take_batch(self) -> list[Trajectory]:
        """The batch's episodes, those under way cut off to go on in the next batch, which begins empty."""
        parts = [slot.cut() for slot in self._cuttable]
        self._batch.add([part for part in parts if part.own_turns])
        return self._batch.take()

    def take_known_prompts(self) -> float:
        """Share of the prompts since the last call that needed no forward of their own."""
        return self._sampler.memory.take_share()

    def recall(self, episode: int) -> tuple[Trajectory, events.Stage] | None:
        """An episode under way, cut off where it stands, or one that ended and is in no update yet; None: not kept."""
        for slot in self._live:
            if slot.counts.number == episode:
                so_far = slot.under_way.finish("truncated")
                return so_far, "under_way" if slot.is_training else "inference"
        for trajectory in self._batch.trajectories:
            if trajectory.episode == episode:
                return trajectory, "waiting"
        for trajectory in self._batch.untrained:
            if trajectory.episode == episode:
                return trajectory, "inference"
        return None

    def restart(self) -> None:
        """Drop the batch and every episode under way: what they were sampled from is no more."""
        self._batch.take()
        self.emit_corrections()
        self._replies = None
        if self.wheel.env is not None:
            self.wheel.let_go("the episodes under way were dropped")
        for slot in self.slots:
            slot.episode = None
        self._begin_group()
        self.spectator.reset(len(self.slots))

    def forget_caches(self) -> None:
        """Compute every conversation from its beginning when it goes on, as a resumed run does."""
        self._sampler.forget()

    def emit_corrections(self) -> None:
        """Emit the episodes under way in which a person acted, as cut off where they stand; none will go on."""
        for slot in self._live:
            if slot.counts.is_corrected:
                self._emit_correction(slot)
                slot.episode = None

    def _emit_correction(self, slot: EnvSlot) -> None:
        if slot.episode is not None and slot.counts.is_corrected:
            self.emit(episode_corrected([*slot.history, slot.finished("truncated")]))

    def resize(self, n_envs: int) -> None:
        """Step another number of environments from now on; episodes under way are dropped.

        Raises:
            EnvError: an environment cannot be made; all is as it was.
        """
        more: list[EnvSlot] = []
        with ExitStack() as undone:
            for index in range(len(self.slots), n_envs):
                more.append(EnvSlot(self, index, Game(self.agent, self._make_env)))
                undone.callback(more[-1].game.close)
            undone.pop_all()
        self.slots += more
        self.emit_corrections()
        for slot in self.slots[n_envs:]:
            slot.game.close()
        del self.slots[n_envs:]
        self._sampler.forget()
        self.restart()

    def close(self) -> None:
        for slot in self.slots:
            slot.game.close()

    def begin_episodes(self) -> None:
        """Start episodes where none is under way, as many as the batch needs."""
        idle = [slot for slot in self.slots if slot.episode is None]
        fresh = idle[: self._may_start(len(idle))]
        for slot in fresh:
            counts = EpisodeCounts(
                mode=self.mode, prompt_version=self.prompt_version, number=self.started
            )
            group = self.group_of(self.started)
            seed = episode_seed(self.seed, group)
            wording = self.wording
            if wording is None:
                wording = drawn_wording(self.seed, group, len(self.agent.wordings))
            self.started += self.ranks.size  # the others have the numbers between
            with self._dropped_if_faulty(slot):
                slot.reset(counts, seed, wording)
        for slot in self._after_others(fresh):
            with self._dropped_if_faulty(slot):
                slot.begin()

    def step(self) -> list[EpisodeCounts]:
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
        replies = self._replies
        self._replies = None
        moves = {self.slots[env]: self._move(env, reply) for env, reply in replies.items()}
        for slot, move in moves.items():
            with self._dropped_if_faulty(slot):
                slot.play(move)
        stepped = _sound(moves)
        self.env_steps += len(stepped)
        ended: list[EpisodeCounts] = []
        for slot in self._after_others(stepped):
            with self._dropped_if_faulty(slot):
                if (trajectory := slot.finish_turn(moves[slot])) is not None:
                    self._keep(slot, trajectory)
                    ended.append(slot.counts)
        return ended

    @property
    def awaits_person(self) -> bool:
        """A step waits for a person to choose."""
        return (
            self._replies is not None
            and self.wheel.env in self._replies
            and self.wheel.reply is None
        )

    def take_wheel(self) -> None:
        """Let a person act in the watched environment from its next turn on, which is the one that waits, if one does.

        Raises:
            EnvError: its actions cannot be taken with keys.
        """
        env = self.spectator.env
        offered: tuple[OfferedAction, ...] = ()
        if not names_by_turn(self.agent):
            offered = choices(self.agent, self.slots[env].game.env.action_space)
        self.wheel.take(env, offered)
        if self._replies is not None and self.awaits_person:
            self._await_person(self.slots[env], self._replies[env])

    def act(self, episode: int, turn: int, action: int | str) -> None:
        """Choose the action of the person at the wheel, for the next `step`.

        Raises:
            UsageError: that turn does not wait, or there is no such action.
            ActionParseError: the agent cannot word the action.
        """
        env = self.wheel.env
        if env is None or not self.awaits_person or not self.slots[env].is_at(episode, turn):
            raise UsageError("That turn is already over.")
        self.wheel.choose(action)

    def _may_start(self, idle: int) -> int:
        """The number of episodes that may begin now in these idle environments."""
        if self.episode_limit is not None:
            idle = min(idle, max(0, self.episode_limit - self.episodes - self.live))
        if self._mode == "inference" or (self.cuts_episodes and self.policy.history == 0):
            return idle
        training = [slot.counts.length for slot in self.slots if slot.is_training]
        missing = self._batch.missing(self.ranks.part(self.batch_turns), training, idle)
        # Whole groups are begun: the rest of the last one, then as many more as are missing.
        begun = self._missing_of_group
        more = math.ceil(max(missing - begun, 0) / self.group_size) * self.group_size
        return min(begun + more, idle)

    def _begin_group(self) -> None:
        """Let the next episode be the first of its group: those of the one under way will not be in one batch."""
        behind = -(self.started // self.ranks.size) % self.group_size
        self.started += behind * self.ranks.size

    @property
    def _missing_of_group(self) -> int:
        """Episodes that the group that was begun last still needs, if they may begin."""
        missing = -(self.started // self.ranks.size) % self.group_size
        if self.episode_limit is None:
            return missing
        return min(missing, max(0, self.episode_limit - self.episodes - self.live))

    def _sample_replies(self) -> dict[int, Reply] | None:
        """The agent's reply in each live environment, None if there is none; the watched tokens are streamed."""
        live = self._live
        if not live:
            return None
        replies = self._sampler.reply(
            [slot.under_way.observe(*slot.shown) for slot in live],
            [slot.under_way.trie for slot in live],
            greedy=self.greedy,
            on_token=self._streaming(live),
        )
        by_env = {slot.index: reply for slot, reply in zip(live, replies, strict=True)}
        if self.wheel.env in by_env:
            self._await_person(self.slots[self.wheel.env], by_env[self.wheel.env])
        return by_env

    def _await_person(self, slot: EnvSlot, reply: Reply) -> None:
        """Offer the person the actions of this turn; the wheel is let go where those are not known."""
        try:
            self.wheel.choices = choices(self.agent, slot.game.env.action_space, slot.shown.actions)
        except EnvError as error:
            self.wheel.let_go(str(error))
            return
        text = self.policy.chat.reply(reply.ids)
        self.emit(
            events.ActionAwaited(
                episode=slot.counts.number,
                turn=slot.counts.length,
                reply=text,
                action_name=named_action(self.agent, text),
                choices=[] if slot.shown.actions is None else list(self.wheel.choices),
            )
        )

    def pending_prompt(self) -> PendingPrompt | None:
        """Where the watched episode waits for a reply; None if none is under way, or it has its reply already."""
        slot = self.slots[self.spectator.env]
        if slot.episode is None or self._replies is not None:
            return None
        return PendingPrompt(
            env=slot.index,
            episode=slot.counts.number,
            turn=slot.counts.length,
            prompt=slot.episode.prompt_for(*slot.shown),
            actions=slot.shown.actions,
        )

    def _streaming(self, live: list[EnvSlot]) -> Callable[[int, int], None]:
        """Streams the watched reply's text as its tokens come, unless a person may reply there."""
        watched = self.slots[self.spectator.env]
        if watched not in live or watched.index == self.wheel.env:
            return lambda index, token: None
        at = live.index(watched)
        counts = watched.counts
        stream = streamed_text(self.policy.chat.text)

        def on_token(index: int, token: int) -> None:
            if index == at and (text := stream(token)):
                self.emit(
                    events.TokensStreamed(episode=counts.number, turn=counts.length, text=text)
                )

        return on_token

    def _move(self, env: int, reply: Reply) -> Move:
        """The move in one environment, by the agent's reply or the person's."""
        person = self.wheel.take_reply() if env == self.wheel.env else None
        return self.slots[env].move(reply, person)

    @contextmanager
    def _dropped_if_faulty(self, slot: EnvSlot) -> Iterator[None]:
        """Act in an environment; if that fails, its episode is dropped, and the environment is broken."""
        try:
            yield
        except EpisodeFault as fault:
            self._drop(slot, fault)

    def _after_others(self, slots: Sequence[EnvSlot]) -> list[EnvSlot]:
        """Let the other player move wherever it is to; the environments that did not fail."""
        while waiting := [slot for slot in _sound(slots) if slot.game.awaits_other]:
            assert self.opponent is not None, "an environment asks for an opponent that is here"
            seats = {}
            for slot in waiting:
                with self._dropped_if_faulty(slot):
                    seats[slot] = slot.seat()
            replies = self.opponent.replies(list(seats.values()), greedy=self.greedy)
            for (slot, seat), reply in zip(seats.items(), replies, strict=True):
                with self._dropped_if_faulty(slot):
                    slot.step_other(seat, reply)
        return _sound(slots)

    def _keep(self, slot: EnvSlot, trajectory: Trajectory) -> None:
        """Count an episode that has ended, and keep it for the update, or to be recalled."""
        counts = slot.counts
        if self.group_size > 1:
            trajectory.group = self.group_of(counts.number)
        self.episodes += 1
        self._batch.typical_length += 0.1 * (counts.length - self._batch.typical_length)
        if counts.mode == "train" and trajectory.own_turns:
            self._batch.add([trajectory])
        elif slot.is_watched:
            self._batch.untrained.append(trajectory)
        if counts.is_corrected:
            self.emit(episode_corrected(slot.history))

    def _drop(self, slot: EnvSlot, fault: EpisodeFault) -> None:
        """Leave an episode out; only its number is used."""
        self._emit_correction(slot)
        slot.drop(fault)
        number = slot.counts.number
        step = slot.counts.length + 1
        where = f"Environment {slot.index + 1:,}, episode {number:,}, step {step:,}"
        self.failures.add(number // self.ranks.size, where, fault)


def _sound(slots: Iterable[EnvSlot]) -> list[EnvSlot]:
    """Those whose environment has not failed."""
    return [slot for slot in slots if not slot.game.is_broken]


class BatchUnderWay:
    """The episodes of the next update, while they are played."""

    def __init__(self) -> None:
        self.trajectories: list[Trajectory] = []
        """The episodes that have ended."""
        self.turns = 0
        """The policy's own turns in them."""
        self.typical_length = float(FIRST_LENGTH)
        """The number of turns that an episode has, about: how many to start for a batch follows from it."""
        self.untrained: deque[Trajectory] = deque(maxlen=REMEMBERED)
        """Episodes that are in no batch, to be recalled for a while."""

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        self.trajectories += trajectories
        self.turns += sum(each.own_turns for each in trajectories)

    def take(self) -> list[Trajectory]:
        """Its episodes; the next batch begins empty."""
        taken = self.trajectories
        self.trajectories = []
        self.turns = 0
        return taken

    def missing(self, turns: int, under_way: Sequence[int], most: int) -> int:
        """The number of episodes to begin for a batch of `turns`; `under_way` has the lengths so far."""
        fewest = FEWEST_TOGETHER - len(under_way) if self.turns < turns else 0
        # Turns that the episodes under way will have, about; each has at least one more.
        expected = sum(max(length + 1, self.typical_length) for length in under_way)
        missing = 0
        while missing < most and (missing < fewest or self.turns + expected < turns):
            expected += max(1, self.typical_length)
            missing += 1
        return missing


def streamed_text(decode: Callable[[Sequence[int]], str]) -> Callable[[int], str]:
    """The new text after each token of a reply: pieces that join to the whole, never half a character."""
    ids: list[int] = []
    shown = ""

    def push(token: int) -> str:
        nonlocal shown
        ids.append(token)
        text = decode(ids)
        if text.endswith("\N{REPLACEMENT CHARACTER}") or not text.startswith(shown):
            return ""
        new = text[len(shown) :]
        shown = text
        return new

    return push
