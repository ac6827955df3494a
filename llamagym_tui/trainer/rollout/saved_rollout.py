"""What a checkpoint keeps of a rollout: the batch under way, and how each episode under way came to where it stands.

Such an episode is repeated by its seed and replies, and compared with what is kept of observations and rewards.
"""

from collections.abc import Generator, Iterator

from msgspec import Struct

from llamagym_tui.config import Mode
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory
from llamagym_tui.protocol.events import TurnFinished
from llamagym_tui.trainer.rollout.env_slot import EnvSlot
from llamagym_tui.trainer.rollout.failures import EpisodeFault


class SavedEpisode(Struct, frozen=True, kw_only=True):
    """An episode under way, up to its last reply."""

    env: int
    number: int
    mode: Mode
    system_prompt: str
    prompt_version: int
    history: int | None
    """Turns before the present one that its prompts have. None: all."""
    observations: list[str]
    """As texts, the one that awaits a reply last."""
    segments: list[Segment]
    replaced: dict[int, str]
    """By turn: the agent's own reply where a person's was used."""
    cut_at: int
    """Segments at first that are in earlier batches."""
    others: list[str] = []
    """What the other player has replied, where that is a policy."""

    def replies(self, end_ids: tuple[int, ...]) -> Iterator[Reply]:
        """What was replied in each turn; `end_ids` end a reply."""
        for segment in self.segments:
            for turn in segment.turns:
                ids = segment.ids[turn.start : turn.end]
                yield Reply(
                    ids,
                    list(turn.logprobs),
                    turn.value,
                    ids[-1] in end_ids,
                    turn.choice,
                )


class SavedRollout(Struct, frozen=True, kw_only=True):
    """What `Rollout.restore` goes on from."""

    n_envs: int
    group_size: int
    mode: Mode
    started: int
    """Episodes begun since the run began."""
    typical_length: float
    lookahead: tuple[float, int]
    trajectories: list[Trajectory]
    """Episodes of the batch that have ended."""
    episodes: list[SavedEpisode]


def saved_episode(slot: EnvSlot) -> SavedEpisode:
    episode = slot.under_way
    observations = []
    replies = 0
    for message in episode.conversation:
        if message["role"] == "user":
            observations.append(message["content"])
        elif message["role"] == "assistant":
            replies += 1
    if len(observations) == replies:
        observations.append(slot.observation)  # no reply to it is under way
    turns = [event for event in slot.history if isinstance(event, TurnFinished)]
    return SavedEpisode(
        env=slot.index,
        number=slot.counts.number,
        mode=slot.counts.mode,
        system_prompt=episode.system_prompt,
        prompt_version=slot.counts.prompt_version,
        history=episode.history,
        observations=observations,
        segments=[
            Segment(segment.prefix, segment.ids[: segment.turns[-1].end], list(segment.turns))
            for segment in episode.segments
            if segment.turns
        ],
        replaced={event.turn: event.replaced for event in turns if event.replaced is not None},
        cut_at=episode.cut_at,
        others=[turn.reply for turn in slot.others],
    )


def repeat(episodes: list[tuple[EnvSlot, SavedEpisode]]) -> int:
    """Play episodes again by their replies, together; how many did not come to where they stood, and are not under
    way."""
    under_way = [_repeats(slot, saved) for slot, saved in episodes]
    lost = 0
    while under_way:
        for each in list(under_way):
            try:
                next(each)
            except StopIteration as end:
                under_way.remove(each)
                was_repeated = end.value
                if not was_repeated:
                    lost += 1
    return lost


def _repeats(slot: EnvSlot, saved: SavedEpisode) -> Generator[None, None, bool]:
    """Yields where a slow environment has begun what comes next; returns whether the episode was repeated."""
    end_ids = slot.shared.policy.chat.end_ids
    others = iter(saved.others)
    try:
        slot.prepare(saved.number)
        yield
        slot.reset(saved.number, saved.mode, saved.prompt_version)
        _repeat_others(slot, saved.system_prompt, others)
        slot.begin(saved.system_prompt)
        slot.under_way.history = saved.history
        for number, reply in enumerate(saved.replies(end_ids)):
            if slot.episode is None:
                return False
            slot.episode.observe(slot.observation, slot.admissible)
            move = slot.move(reply, replaced=saved.replaced.get(number))
            yield
            slot.step(move)
            _repeat_others(slot, saved.system_prompt, others)
            slot.add(move)
        if slot.episode is not None:
            slot.episode.cut_at = saved.cut_at
            if saved_episode(slot) == saved:
                return True
    except EpisodeFault:
        slot.is_broken = True
    slot.episode = None
    return False


def _repeat_others(slot: EnvSlot, system_prompt: str, replies: Iterator[str]) -> None:
    """Let the other player move as it did."""
    while slot.awaits_other and (reply := next(replies, None)) is not None:
        slot.send_other(slot.seat(system_prompt), reply)
        slot.step_other()
