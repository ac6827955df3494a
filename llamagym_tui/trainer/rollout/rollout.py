"""Many environments, one batch: every step is one turn of every live environment.

A training batch starts episodes until enough turns are under way and then lets all of them end, so that every episode
that was started counts and short ones are not favoured; or it cuts them off, and they go on in the next batch. A
`Spectator` observes every episode and emits what is watched. While a person acts in an environment, a step waits
between replies and actions until they have chosen. Slow environments step at the same time, in threads.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import OfferedAction, choices
from llamagym_tui.game.drawing import StateDrawing, drawn, draws, revealed
from llamagym_tui.game.environment import Env, EnvMaker, turn_limit
from llamagym_tui.game.game import EpisodeFault, Game
from llamagym_tui.game.observed import names_by_turn
from llamagym_tui.protocol import events
from llamagym_tui.settings import MAX_FAILURES, Mode, ParallelEnvs
from llamagym_tui.trainer.rollout.env_slot import (
    EnvSlot,
    Move,
    PendingPrompt,
    Shared,
    named_action,
)
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import Failures, Notices
from llamagym_tui.trainer.rollout.opponents import Opponent, Seat
from llamagym_tui.trainer.rollout.spectator import Item, Spectator, Undrawn
from llamagym_tui.trainer.rollout.wheel import Wheel

SLOW_S = 0.005
"""Seconds of an environment's step above which environments step in threads."""
MOST_THREADS = 64
"""Environments that step at the same time, at most."""
MEASURED = 3
"""Steps that are measured; the fastest one counts."""
FIRST_LENGTH = 100
"""Turns of an episode, at most, as long as none has ended."""
FEWEST_TOGETHER = 16
"""Environments that are stepped together even if fewer would fill the batch; long episodes make it larger then."""
REMEMBERED = 64
"""Watched episodes of inference mode that can be recalled after their end."""


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
        make_env: Callable[[], Env] | None = None,
        parallel: ParallelEnvs = "auto",
        ranks: Ranks = ALONE,
        opponent: Opponent | None = None,
    ) -> None:
        """Make the environments; nothing is reset yet.

        Args:
            max_turns: after which an episode is truncated. None: the environment's own limit.
            batch_turns: turns of a training batch, at least, of all `ranks` together.
            cuts_episodes: whether a full batch cuts off the episodes under way, where no prompt has earlier turns.
            group_size: episodes that are reset to the same seed, and are in the same batch.
            seed: of the run, from which each episode's own follows.
            emit: receives the events of what is watched, and warnings.
            episode_limit: episodes to end since the run began. None: no limit.
            max_failures: dropped episodes in a row that end the run.
            make_env: `EnvMaker` if None.
            parallel: step environments in threads; `auto` does so if they are slow.
            ranks: this one and those that play other environments; their episodes have numbers in turn.
            opponent: the other player, where that is a policy.
        Raises:
            EnvError: an environment cannot be made.
        """
        self.agent = agent
        self.policy = policy
        self.ranks = ranks
        self.opponent = opponent
        """The other player of a game for two. None: it is a part of the environment, or there is none."""
        self.batch_turns = batch_turns
        """Turns of a training batch, at least, of all ranks together."""
        self.cuts_episodes = cuts_episodes
        """A full batch cuts off the episodes under way."""
        self.greedy = greedy
        self.episode_limit = episode_limit
        """Episodes to end since the run began. None: no limit."""
        self._emit = emit
        self.spectator = Spectator(self._emit_watched)
        self.wheel = Wheel(agent, emit)

        def warn(sentence: str) -> None:
            emit(events.WarningRaised(message=sentence))

        self.failures = Failures(max_failures, warn)
        self._make_env = make_env or EnvMaker(agent)
        self._parallel = parallel
        self._threads: ThreadPoolExecutor | None = None
        """In which environments step; None: in this thread."""
        self._measured: list[float] = []
        """Seconds of a step in each of the first ones."""
        self.shared = Shared(
            agent=agent,
            policy=policy,
            spectator=self.spectator,
            notices=Notices(agent, warn),
            max_turns=max_turns or 0,
            seed=seed,
            group_size=group_size,
            ranks=ranks.size,
        )
        self._drawing = False
        """Somebody wants drawings of the watched states."""
        self.episodes = 0
        """Episodes ended since the run began."""
        self.env_steps = 0
        """Environment steps since the run began."""
        self._replies: dict[int, Reply] | None = None
        """The agent's replies by environment, while a step waits between them and the actions."""
        self.started = 0
        """Number of the next episode."""
        self._mode: Mode = "train"
        self.system_prompt = agent.get_system_prompt()
        """The system prompt of the episodes that begin from now on."""
        self.prompt_version = 0
        self._batch = BatchUnderWay(FIRST_LENGTH)
        self.slots: list[EnvSlot] = []
        self.resize(n_envs)
        self.shared.max_turns = max_turns or turn_limit(self.slots[0].game.env)
        self._batch.typical_length = min(self.shared.max_turns, FIRST_LENGTH)

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
            for slot in self.slots:
                slot.counts = replace(slot.counts, mode="inference")

    def set_system_prompt(self, text: str, version: int) -> None:
        """Use another system prompt from the next reset on."""
        self.system_prompt = text
        self.prompt_version = version

    @property
    def draws(self) -> bool:
        """The agent or the environments can draw states."""
        return draws(self.agent) or any(
            slot.game.env.render_mode == "ansi" for slot in self.slots[:1]
        )

    def set_drawing(self, on: bool) -> None:
        """Draw the watched states from now on, the present one at once, or draw no more."""
        self._drawing = on
        if on:
            self.spectator.emit_state()

    def _emit_watched(self, item: Item) -> None:
        """Emit an event, or a state as a drawing if those are wanted."""
        if not isinstance(item, Undrawn):
            self._emit(item)
        elif self._drawing and (drawn := self._drawn(item)) is not None:
            self._emit(drawn)

    def _drawn(self, state: Undrawn) -> events.StateDrawn | None:
        """The drawing of a state; None if there is none: an environment renders only the state that it is in."""
        slot = self.slots[state.env] if state.env < len(self.slots) else None
        is_there = slot is not None and slot.is_at(state.episode, state.turn)
        if not is_there and not draws(self.agent):
            return None
        env = slot.game.env if slot is not None and is_there else None
        found = StateDrawing("")
        if state.is_over and env is not None:
            found = revealed(self.agent, env, state.observation, state.info)
        if not found.text:
            found = drawn(self.agent, env, state.observation, state.info)
        if not found.text:
            return None
        return events.StateDrawn(
            episode=state.episode,
            turn=state.turn,
            text=found.text,
            marks=list(found.marks),
            grounds=list(found.grounds),
        )

    def set_counters(
        self, *, episodes: int, env_steps: int, started: int = 0, dropped: int = 0
    ) -> None:
        """Go on counting where an earlier session ended."""
        self.failures.dropped = dropped
        self.episodes = episodes
        self.env_steps = env_steps
        self.started = max(started, episodes)
        self._begin_group()

    @property
    def group_size(self) -> int:
        """Episodes that are reset to the same seed, and are in the same batch; another number drops the batch."""
        return self.shared.group_size

    @group_size.setter
    def group_size(self, size: int) -> None:
        if size != self.shared.group_size:
            self.shared.group_size = size
            self.restart()

    @property
    def live(self) -> int:
        """The number of episodes under way."""
        return sum(slot.episode is not None for slot in self.slots)

    @property
    def batch_ready(self) -> bool:
        """The training batch is full, and its episodes have ended or can be cut."""
        cuttable = self._cuttable
        turns = self._batch.turns + sum(slot.under_way.own_turns for slot in cuttable)
        if turns < self.ranks.part(self.batch_turns) or self._missing_of_group:
            return False
        # What was begun in train mode is awaited, if it cannot be cut; where nothing can, all is.
        awaited = [slot for slot in self.slots if slot.episode is not None]
        if cuttable:
            awaited = [slot for slot in awaited if slot.counts.mode == "train"]
        return len(cuttable) == len(awaited)

    @property
    def batch_progress(self) -> tuple[int, int]:
        """Turns of the training batch that were played, by now, and all that it is to have, of this rank."""
        under_way = [
            slot.under_way.own_turns
            for slot in self.slots
            if slot.episode is not None and slot.counts.mode == "train"
        ]
        wanted = self.ranks.part(self.batch_turns)
        return min(self._batch.turns + sum(under_way), wanted), wanted

    @property
    def _cuttable(self) -> list[EnvSlot]:
        if not self.cuts_episodes:
            return []
        return [slot for slot in self.slots if slot.can_be_cut]

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
        for slot in self.slots:
            if slot.episode is not None and slot.counts.number == episode:
                so_far = slot.episode.finish("truncated")
                return so_far, "under_way" if slot.counts.mode == "train" else "inference"
        return self._batch.recall(episode)

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
        """Emit the episodes under way in which a person acted, once, as cut off where they stand; none will go on."""
        for slot in self.slots:
            if slot.counts.is_corrected:
                self._emit_correction(slot)
                slot.episode = None

    def _emit_correction(self, slot: EnvSlot) -> None:
        if (correction := slot.take_correction()) is not None:
            self._emit(correction)

    def resize(self, n_envs: int) -> None:
        """Step another number of environments from now on; episodes under way are dropped.

        Raises:
            EnvError: an environment cannot be made; all is as it was.
        """
        more: list[EnvSlot] = []
        with ExitStack() as undone:
            for index in range(len(self.slots), n_envs):
                more.append(EnvSlot(self.shared, index, Game(self.agent, self._make_env)))
                undone.callback(more[-1].game.close)
            undone.pop_all()
        self.slots += more
        self.emit_corrections()
        for slot in self.slots[n_envs:]:
            slot.game.close()
        del self.slots[n_envs:]
        self._sampler = Sampler(self.policy)
        self.restart()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        for slot in self.slots:
            slot.game.close()

    def begin_episodes(self) -> None:
        """Start episodes where none is under way, as many as the batch needs."""
        idle = [slot for slot in self.slots if slot.episode is None]
        starting = idle[: self._may_start(len(idle))]
        for slot in starting:
            slot.reset(self.started, self._mode, self.prompt_version)
            self.started += self.ranks.size  # the others have the numbers between
        seed_of = self.shared.seed_of
        fresh = self._without_faults(
            starting, lambda slot: slot.game.reset(seed_of(slot.counts.number)), in_threads=True
        )
        self._without_faults(self._after_others(fresh), lambda slot: slot.begin(self.system_prompt))

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
        moves = {index: self._move(index, reply) for index, reply in replies.items()}
        playing = [self.slots[index] for index in moves]
        kept = self._without_faults(playing, lambda slot: slot.keep(moves[slot.index]))
        stepped = self._step_environments(kept, moves)
        self.env_steps += len(stepped)
        ended = []
        for slot in self._after_others(stepped):
            counts = self._turn(slot, moves[slot.index])
            if counts is not None:
                ended.append(counts)
        self.keep_wheel_in_view()  # a failure somewhere may be watched from now on, or an episode held
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
        slot = None if self.wheel.env is None else self.slots[self.wheel.env]
        if slot is None or not self.awaits_person or not slot.is_at(episode, turn):
            raise UsageError("That turn is already over.")
        self.wheel.choose(action)

    def keep_wheel_in_view(self) -> None:
        """Let go of the wheel of an environment that is not watched any more."""
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.wheel.let_go("another conversation is watched")

    def _may_start(self, idle: int) -> int:
        """The number of episodes that may begin now in these idle environments."""
        if self.episode_limit is not None:
            idle = min(idle, max(0, self.episode_limit - self.episodes - self.live))
        if self._mode == "inference" or (self.cuts_episodes and self.policy.history == 0):
            return idle
        training = [
            slot.counts.length
            for slot in self.slots
            if slot.episode is not None and slot.counts.mode == "train"
        ]
        missing = self._batch.missing(self.ranks.part(self.batch_turns), training, idle)
        # Whole groups are begun: what is left of the last one, then as many more as are missing.
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
        live = [index for index, slot in enumerate(self.slots) if slot.episode is not None]
        if not live:
            return None
        prompts = [self.slots[index].prompt() for index in live]
        replies = self._sampler.reply(
            prompts,
            [self.slots[index].under_way.trie for index in live],
            greedy=self.greedy,
            on_token=self._streaming(live),
        )
        by_env = dict(zip(live, replies, strict=True))
        if self.wheel.env in by_env:
            self._await_person(self.slots[self.wheel.env], by_env[self.wheel.env])
        return by_env

    def _await_person(self, slot: EnvSlot, reply: Reply) -> None:
        """Offer the person what can be done in this turn; the wheel is let go where that is not known."""
        text = self.policy.chat.reply(reply.ids)
        name = named_action(self.agent, self.policy.chat.reply(reply.ids))
        try:
            offered = choices(self.agent, slot.game.env.action_space, slot.shown.actions)
        except EnvError as error:
            self.wheel.let_go(str(error))
            return
        self.wheel.choices = offered
        self._emit(
            events.ActionAwaited(
                episode=slot.counts.number,
                turn=slot.counts.length,
                reply=text,
                action_name=name,
                choices=[] if slot.shown.actions is None else list(offered),
            )
        )

    def pending_prompt(self) -> PendingPrompt | None:
        """Where the watched episode waits for a reply; None if none is under way, or it has its reply already."""
        env = self.spectator.env
        slot = self.slots[env] if env < len(self.slots) else None
        if slot is None or slot.episode is None or self._replies is not None:
            return None
        return slot.pending_prompt()

    def _streaming(self, live: list[int]) -> Callable[[int, int], None]:
        """Streams the watched reply's text as its tokens come; nothing if no live environment is watched, or a person
        may reply there."""
        env = self.spectator.env
        if env not in live or env == self.wheel.env:
            return lambda index, token: None
        watched = self.slots[env].counts
        at = live.index(env)
        stream = streamed_text(self.policy.chat.text)

        def on_token(index: int, token: int) -> None:
            if index == at and (text := stream(token)):
                self._emit(
                    events.TokensStreamed(episode=watched.number, turn=watched.length, text=text)
                )

        return on_token

    def _move(self, env: int, reply: Reply) -> Move:
        """The move in one environment, by the agent's reply or the person's."""
        slot = self.slots[env]
        if env == self.wheel.env:
            return slot.move(reply, self.wheel.take_reply(), self.policy.chat.reply(reply.ids))
        return slot.move(reply)

    def _step_environments(self, slots: list[EnvSlot], moves: dict[int, Move]) -> list[EnvSlot]:
        """Step environments; those that did not fail."""

        def step(slot: EnvSlot) -> None:
            move = moves[slot.index]
            slot.game.step(move.action, is_fallback=move.reading.failed)

        began_at = time.perf_counter()
        stepped = self._without_faults(slots, step, in_threads=True)
        if self._threads is None and slots and len(self._measured) < MEASURED:
            self._measured.append((time.perf_counter() - began_at) / len(slots))
            self._use_threads_if_slow()
        return stepped

    def _use_threads_if_slow(self) -> None:
        """Step environments in threads from now on, if that is wanted or their steps are slow."""
        fastest_s = min(self._measured)
        is_slow = len(self._measured) == MEASURED and fastest_s > SLOW_S
        is_wanted = self._parallel == "on" or (self._parallel == "auto" and is_slow)
        count = len(self.slots)
        if not is_wanted or count == 1:
            return
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="environment")
        took = f"{self.agent.env_id} takes {1e3 * fastest_s:,.0f} ms a step"
        self._emit(
            events.WarningRaised(message=f"{took}: {count:,} environments step at the same time.")
        )

    def _without_faults(
        self, slots: Sequence[EnvSlot], act: Callable[[EnvSlot], None], *, in_threads: bool = False
    ) -> list[EnvSlot]:
        """Act in some environments; those where that went well. The episodes of the others are dropped."""

        def fault_of(slot: EnvSlot) -> EpisodeFault | None:
            try:
                act(slot)
            except EpisodeFault as fault:
                return fault
            return None

        faults: Iterable[EpisodeFault | None] = map(fault_of, slots)
        if in_threads and self._threads is not None:
            faults = self._threads.map(fault_of, slots)
        left = []
        for slot, fault in zip(slots, list(faults), strict=True):
            if fault is None:
                left.append(slot)
            else:
                self._drop(slot, fault)
        return left

    def _after_others(self, slots: list[EnvSlot]) -> list[EnvSlot]:
        """Let the other player move wherever it is to; the environments that did not fail."""
        left = list(slots)
        while waiting := [slot for slot in left if slot.game.awaits_other]:
            assert self.opponent is not None, "an environment asks for an opponent that is here"
            seats: dict[int, Seat] = {}

            def sit(slot: EnvSlot, seats: dict[int, Seat] = seats) -> None:
                seats[slot.index] = slot.seat(self._prompt_of(slot))

            seated = self._without_faults(waiting, sit)
            replies = self.opponent.replies(list(seats.values()), greedy=self.greedy)
            said = dict(zip(seats, replies, strict=True))

            def answer(
                slot: EnvSlot, seats: dict[int, Seat] = seats, said: dict[int, str] = said
            ) -> None:
                slot.step_other(seats[slot.index], said[slot.index])

            moved = self._without_faults(seated, answer)
            left = [slot for slot in left if slot not in waiting or slot in moved]
        return left

    def _prompt_of(self, slot: EnvSlot) -> str:
        """The system prompt of the episode in an environment, or of the one that is to begin there."""
        return self.system_prompt if slot.episode is None else slot.episode.system_prompt

    def _turn(self, slot: EnvSlot, move: Move) -> EpisodeCounts | None:
        """Credit a turn in one environment; what is counted if that ended its episode."""
        try:
            if (ended := slot.add(move)) is None:
                return None
        except EpisodeFault as fault:
            self._drop(slot, fault)
            return None
        trajectory = ended.trajectory
        self.episodes += 1
        self._batch.typical_length += 0.1 * (ended.counts.length - self._batch.typical_length)
        if ended.counts.mode == "train" and trajectory.own_turns:
            self._batch.add([trajectory])
        elif ended.was_watched:
            self._batch.untrained.append(trajectory)
        if ended.correction is not None:
            self._emit(ended.correction)
        return ended.counts

    def _drop(self, slot: EnvSlot, fault: EpisodeFault) -> None:
        """Leave an episode out; only its number is used."""
        self._emit_correction(slot)
        slot.drop(fault)
        number = slot.counts.number
        step = slot.counts.length + 1
        where = f"Environment {slot.index + 1:,}, episode {number:,}, step {step:,}"
        self.failures.add(number // self.ranks.size, where, fault)


class BatchUnderWay:
    """The episodes of the next update, while they are played."""

    def __init__(self, typical_length: float) -> None:
        """An empty batch; `typical_length` is a first guess."""
        self.trajectories: list[Trajectory] = []
        """The episodes that have ended."""
        self.turns = 0
        """The policy's own turns in them."""
        self.typical_length = typical_length
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

    def recall(self, episode: int) -> tuple[Trajectory, events.Stage] | None:
        """An episode that ended and is in no update yet; None: not kept."""
        for trajectory in self.trajectories:
            if trajectory.episode == episode:
                return trajectory, "waiting"
        for trajectory in self.untrained:
            if trajectory.episode == episode:
                return trajectory, "inference"
        return None


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
