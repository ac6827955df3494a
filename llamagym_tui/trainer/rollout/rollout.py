"""Many environments, one batch: every step is one turn of every live environment.

A training batch starts episodes until enough turns are under way and then lets all of them end, so that every episode
that was started counts and short ones are not favoured; or it cuts those under way off, and they go on in the next one,
so that none is favoured either. A `Spectator` observes every episode and emits what is watched.
While a person has the wheel, a step waits between replies and actions until they have chosen.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import msgspec

from llamagym_tui.config import MAX_FAILURES, Mode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Lookahead, Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import OfferedAction, choices
from llamagym_tui.game.drawing import StateDrawing, drawn, draws, revealed
from llamagym_tui.game.environment import EnvMaker, turn_limit
from llamagym_tui.game.observed import names_by_turn
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.env_process import EnvProcess, ParallelMaker
from llamagym_tui.trainer.rollout.env_slot import (
    AnyEnv,
    EnvSlot,
    Move,
    PendingPrompt,
    Shared,
    named_action,
)
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import EpisodeFault, Failures, Notices
from llamagym_tui.trainer.rollout.opponents import Opponent, Seat
from llamagym_tui.trainer.rollout.saved_rollout import SavedRollout, repeat, saved_episode
from llamagym_tui.trainer.rollout.spectator import Item, Spectator, Undrawn
from llamagym_tui.trainer.rollout.training_batch import BatchUnderWay
from llamagym_tui.trainer.rollout.wheel import Wheel

FIRST_LENGTH = 100
"""Turns of an episode, at most, as long as none has ended."""


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
        make_env: Callable[[], AnyEnv] | None = None,
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
            make_env: None: `EnvMaker`.
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
        """Whether a full batch cuts off the episodes under way."""
        self.greedy = greedy
        self.episode_limit = episode_limit
        """Episodes to end since the run began. None: no limit."""
        self._emit = emit
        self.spectator = Spectator(self._emit_watched, self._kept)
        self.wheel = Wheel(agent, emit)

        def warn(sentence: str) -> None:
            emit(events.WarningRaised(message=sentence))

        self.failures = Failures(max_failures, warn)
        make_env = make_env or EnvMaker(agent)
        self.shared = Shared(
            agent=agent,
            policy=policy,
            spectator=self.spectator,
            notices=Notices(agent, warn),
            make_env=make_env,
            max_turns=max_turns or 0,
            seed=seed,
            group_size=group_size,
            ranks=ranks.size,
        )
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
        """Number of the next episode."""
        self._mode: Mode = "train"
        self.system_prompt = agent.get_system_prompt()
        """The system prompt of the episodes that begin from now on."""
        self.prompt_version = 0
        self._batch = BatchUnderWay(FIRST_LENGTH)
        self.slots: list[EnvSlot] = []
        self.resize(n_envs)
        if isinstance(make_env, ParallelMaker) and make_env.notice:
            warn(f"{agent.env_id} {make_env.notice}")
        self.shared.max_turns = max_turns or turn_limit(self.slots[0].env)
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
            self.spectator.forget_batches()
            for slot in self.slots:
                slot.counts = replace(slot.counts, mode="inference")

    def set_system_prompt(self, text: str, version: int) -> None:
        """Use another system prompt from the next reset on."""
        self.system_prompt = text
        self.prompt_version = version

    @property
    def draws(self) -> bool:
        """Whether states can be drawn, by the agent or by the environments."""
        return draws(self.agent) or any(slot.env.render_mode == "ansi" for slot in self.slots[:1])

    def set_drawing(self, on: bool) -> None:
        """Draw the watched states from now on, the present one at once, or draw no more."""
        self._drawing = on
        if on:
            self.spectator.emit_state()

    def _emit_watched(self, item: Item) -> None:
        """Emit an event, or a state as a drawing if those are wanted."""
        shown = self._kept(item) if isinstance(item, Undrawn) else item
        if isinstance(shown, Undrawn) or (
            isinstance(shown, events.StateDrawn) and not self._drawing
        ):
            return
        self._emit(shown)

    def _kept(self, state: Undrawn) -> Item:
        """A state as a drawing if those are wanted, and there is one."""
        return (self._drawn(state) if self._drawing else None) or state

    def _drawn(self, state: Undrawn) -> events.StateDrawn | None:
        """The drawing of a state; None if there is none: an environment renders only the state that it is in."""
        slot = self.slots[state.env] if state.env < len(self.slots) else None
        is_there = slot is not None and slot.is_at(state.episode, state.turn)
        if not is_there and not draws(self.agent):
            return None
        env = slot.env if slot is not None and is_there else None
        # One in a process of its own renders; nothing here knows its state.
        has_state = not isinstance(env, EnvProcess)
        found = StateDrawing("")
        if state.is_over and env is not None and has_state:
            found = revealed(self.agent, env, state.observation, state.info)
        if not found.text:
            shown = env if has_state or not draws(self.agent) else None
            found = drawn(self.agent, shown, state.observation, state.info)
        if not found.text:
            return None
        return events.StateDrawn(
            episode=state.episode,
            turn=state.turn,
            text=found.text,
            marks=list(found.marks),
            grounds=list(found.grounds),
        )

    def set_counters(self, *, episodes: int, env_steps: int, dropped: int = 0) -> None:
        """Go on counting where an earlier session ended."""
        self.failures.dropped = dropped
        self.episodes = episodes
        self.env_steps = env_steps
        self._started = episodes
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
        """Whether a training batch is full and its episodes have ended or, whatever inference mode left, can be cut."""
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
        self.spectator.next_batch()
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
        self.spectator.next_batch()
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
        for slot in self.slots:
            slot.knows_last = False

    def state(self) -> SavedRollout:
        """What a rollout needs to go on from here; of a person's turn that waits, not the agent's reply."""
        return SavedRollout(
            n_envs=len(self.slots),
            group_size=self.group_size,
            mode=self._mode,
            started=self._started,
            typical_length=self._batch.typical_length,
            lookahead=self._sampler.lookahead,
            trajectories=self._batch.trajectories,
            episodes=[saved_episode(slot) for slot in self.slots if slot.episode is not None],
        )

    def restore(self, state: Any) -> int:
        """Go on from a state; the number of episodes under way that cannot be repeated and begin anew.

        The batch is taken up if it has the same mode, as many environments, and groups of the same size.

        Raises:
            msgspec.ValidationError: it is not of this version.
        """
        saved = msgspec.convert(state, SavedRollout)
        emit = self._emit
        self._emit = lambda event: None  # what is repeated was shown before
        lost = 0
        own = (len(self.slots), self.group_size, self._mode)
        if (saved.n_envs, saved.group_size, saved.mode) == own:
            lost = repeat([(self.slots[each.env], each) for each in saved.episodes])
            self._batch.typical_length = saved.typical_length
            self._sampler.lookahead = Lookahead(*saved.lookahead)
            self._batch.add(saved.trajectories)
        self._started = saved.started
        self._emit = emit
        self.forget_caches()
        if self.live:
            self.spectator.watch(self.spectator.env or 0)
        return lost

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
                more.append(EnvSlot(self.shared, index, self.shared.make_env()))
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
        idle = [slot for slot in self.slots if slot.episode is None]
        starting = idle[: self._may_start(len(idle))]
        # The ranks have every number in turn.
        numbers = [self._started + at * self.ranks.size for at in range(len(starting))]
        self._started += len(starting) * self.ranks.size
        for number, slot in zip(numbers, starting, strict=True):
            slot.prepare(number)
        fresh: list[EnvSlot] = []
        for number, slot in zip(numbers, starting, strict=True):
            if self._is_done(slot, slot.reset, number, self._mode, self.prompt_version):
                fresh.append(slot)
        for slot in self._after_others(fresh):
            self._is_done(slot, slot.begin, self.system_prompt)

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
        # All are read before any step is awaited: environments in processes of their own step meanwhile.
        moves = [(self.slots[index], self._move(index, reply)) for index, reply in replies.items()]
        made = {slot.index: move for slot, move in moves if self._is_done(slot, slot.step, move)}
        self.env_steps += len(made)
        ended = []
        for slot in self._after_others([self.slots[index] for index in made]):
            counts = self._turn(slot, made[slot.index])
            if counts is not None:
                ended.append(counts)
        self.keep_wheel_in_view()  # a failure somewhere may be watched from now on, or an episode held
        return ended

    @property
    def awaits_person(self) -> bool:
        """Whether a step waits until the person at the wheel has chosen."""
        return (
            self._replies is not None
            and self.wheel.env in self._replies
            and self.wheel.reply is None
        )

    def take_wheel(self) -> None:
        """Let a person act in the watched environment from its next turn on, which is the one that waits, if one does.

        Raises:
            UsageError: what is watched is no play under way.
            EnvError: its actions cannot be taken with keys.
        """
        env = self.spectator.env
        if env is None:
            raise UsageError(
                "What is watched was played already; ] goes back to the play, where w takes the wheel."
            )
        offered: tuple[OfferedAction, ...] = ()
        if not names_by_turn(self.agent):
            offered = choices(self.agent, self.slots[env].env.action_space)
        self.wheel.take(env, offered)
        if self._replies is not None and self.awaits_person:
            self._await_person(self.slots[env], self._replies[env])

    def act(self, episode: int, turn: int, action: int | str, reasoning: str = "") -> None:
        """Choose the action of the person at the wheel, for the next `step`.

        Raises:
            UsageError: that turn does not wait, or there is no such action.
            ActionParseError: with this sentence the agent would read another action.
        """
        slot = None if self.wheel.env is None else self.slots[self.wheel.env]
        if slot is None or not self.awaits_person or not slot.is_at(episode, turn):
            raise UsageError("That turn does not wait for you any more; nothing was done.")
        self.wheel.choose(action, reasoning)

    def keep_wheel_in_view(self) -> None:
        """Let go of the wheel of an environment that is not watched any more."""
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.wheel.let_go("another conversation is watched")

    def _may_start(self, idle: int) -> int:
        """How many episodes may begin now, in so many idle environments."""
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
        behind = -(self._started // self.ranks.size) % self.group_size
        self._started += behind * self.ranks.size

    @property
    def _missing_of_group(self) -> int:
        """Episodes that the group that was begun last still needs, if they may begin."""
        missing = -(self._started // self.ranks.size) % self.group_size
        if self.episode_limit is None:
            return missing
        return min(missing, max(0, self.episode_limit - self.episodes - self.live))

    def _sample_replies(self) -> dict[int, Reply] | None:
        """The agent's reply in each live environment, None if there is none; the watched tokens are streamed."""
        self.last_reply = ""
        live = [index for index, slot in enumerate(self.slots) if slot.episode is not None]
        if not live:
            return None
        prompts = [self.slots[index].prompt() for index in live]
        for index, prompt in zip(live, prompts, strict=True):
            if prompt.restart is not None:
                self._sampler.restart(index, prompt.restart)
        replies = self._sampler.reply(
            live,
            [prompt.ids for prompt in prompts],
            [self.slots[index].under_way.trie for index in live],
            greedy=self.greedy,
            on_token=self._streaming(live),
        )
        self.last_reply = self.policy.chat.reply(replies[0].ids)
        by_env = dict(zip(live, replies, strict=True))
        if self.wheel.env in by_env:
            self._await_person(self.slots[self.wheel.env], by_env[self.wheel.env])
        return by_env

    def _await_person(self, slot: EnvSlot, reply: Reply) -> None:
        """Offer the person what can be done in this turn; the wheel is let go where that is not known."""
        text = self.policy.chat.reply(reply.ids)
        name = named_action(self.agent, self.policy.chat.reply(reply.ids))
        try:
            offered = choices(self.agent, slot.env.action_space, slot.admissible)
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
                choices=[] if slot.admissible is None else list(offered),
            )
        )

    def pending_prompt(self) -> PendingPrompt | None:
        """Where the watched episode waits for a reply; None if none is under way, or it has its reply already."""
        env = self.spectator.env
        slot = None if env is None else self.slots[env]
        if slot is None or slot.episode is None or self._replies is not None:
            return None
        return slot.pending_prompt()

    def _streaming(self, live: list[int]) -> Callable[[int, int], None]:
        """Streams the watched reply's text as its tokens come; nothing if no live environment is watched, or a person
        may reply there."""
        env = self.spectator.env
        if env is None or env not in live or env == self.wheel.env:
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
        """What is done in one environment, by the agent's reply or the person's."""
        slot = self.slots[env]
        if env == self.wheel.env:
            return slot.move(reply, self.wheel.take_reply(), self.policy.chat.reply(reply.ids))
        return slot.move(reply)

    def _is_done(self, slot: EnvSlot, act: Callable[..., None], *args: Any) -> bool:
        """Act in one environment; whether that went well, or else the episode is dropped."""
        try:
            act(*args)
        except EpisodeFault as fault:
            self._drop(slot, fault)
            return False
        return True

    def _after_others(self, slots: list[EnvSlot]) -> list[EnvSlot]:
        """Let the other player move in all environments in which it is to; those whose episodes go well."""
        left = list(slots)
        while waiting := [slot for slot in left if slot.awaits_other]:
            assert self.opponent is not None, (
                "an environment asks for another player where there is one"
            )
            seats: dict[int, Seat] = {}
            for slot in waiting:
                try:
                    seats[slot.index] = slot.seat(self._prompt_of(slot))
                except EpisodeFault as fault:
                    self._drop(slot, fault)
            replies = self.opponent.replies(list(seats.values()), greedy=self.greedy)
            asked = [self.slots[index] for index in seats]
            for slot, reply in zip(asked, replies, strict=True):
                slot.send_other(seats[slot.index], reply)
            moved = {slot.index for slot in asked if self._is_done(slot, slot.step_other)}
            left = [slot for slot in left if slot not in waiting or slot.index in moved]
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
