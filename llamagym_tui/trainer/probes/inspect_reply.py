"""Inspects replies token by token: of episodes under way, of the batch under way, and of the last two updates.

It scores a reply under the policy as it is now, in a forward of its own, and adds what was kept: log-probabilities
from sampling, values and advantages from the update. It changes nothing and draws no random number.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from llamagym_tui.protocol.events import TurnInspected
from llamagym_tui.protocol.inspected import Alternative, ContextToken, Decision, InspectedToken, ScoredReply

if TYPE_CHECKING:
    from llamagym_tui.engine.learning.inspection import ChoiceNow, Earned, TokenNow, UsedBatch
    from llamagym_tui.engine.learning.ppo import PPO
    from llamagym_tui.engine.policy.policy import Policy
    from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
    from llamagym_tui.trainer.rollout.batch import Stage
    from llamagym_tui.trainer.rollout.rollout import Rollout

MOST_ALTERNATIVES = 8
"""Alternatives of a token that are reported, in addition to admissible ones."""
MOST_REPLIES = 64
"""Scored replies that are reported."""
BEFORE, AFTER = 64, 24
"""Tokens reported before and after a reply."""
log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """A reply and where it stands."""

    trajectory: Trajectory
    number: int
    segment: Segment
    turn: Turn


class ReplyInspector:
    def __init__(self, policy: Policy, ppo: PPO, rollout: Rollout) -> None:
        self._policy, self._ppo, self._rollout = policy, ppo, rollout

    def inspect(self, episode: int, turn: int) -> TurnInspected:
        """What is known of a reply, or why nothing is; both are counted from 0."""
        stage: Stage = "trained"
        if used := self._used(episode, turn):
            trajectory = used[1]
        elif recalled := self._rollout.recall(episode):
            trajectory, stage = recalled
        else:
            return TurnInspected(episode=episode, turn=turn, why_not=_not_kept(episode))
        place = _place(trajectory, turn)
        if place is None:
            is_earlier = turn < len(trajectory.earlier)
            why_not = _not_kept(episode) if is_earlier else f"Reply {turn + 1} has not come yet."
            return TurnInspected(episode=episode, turn=turn, why_not=why_not)
        try:
            return self._inspected(episode, place, stage, used[0] if used else None)
        except Exception as error:  # its forward is not the run's: memory may be short for it alone
            log.exception("a reply was not inspected")
            return TurnInspected(episode=episode, turn=turn, why_not=f"{type(error).__name__}: {error}.")

    def _used(self, episode: int, turn: int) -> tuple[UsedBatch, Trajectory] | None:
        pairs = ((batch, each) for batch in reversed(self._ppo.used) for each in batch.trajectories)
        return next((pair for pair in pairs if pair[1].episode == episode and _has(pair[1], turn)), None)

    def _inspected(self, episode: int, place: _Place, stage: Stage, used: UsedBatch | None) -> TurnInspected:
        from llamagym_tui.engine.learning.inspection import choice_now, tokens_now

        trajectory, number, segment, turn = place
        temperature = used.temperature if used else self._policy.generation.temperature
        clip_range = used.clip_range if used else self._ppo.config.clip_range
        earned = used.earned(trajectory, number - len(trajectory.earlier)) if used and turn.is_trained else []
        credit = used.credit if used else self._ppo.config.credit
        each = tokens_now(
            self._policy, segment, turn, temperature=temperature if turn.choice is None else 1.0, most=MOST_ALTERNATIVES
        )
        if credit == "turn":  # its value is the one before its first token
            each = [replace(token, value=each[0].value) for token in each]
        choice, replies = None, list[ScoredReply]()
        if turn.choice is not None:
            now = choice_now(self._policy, segment, turn, turn.choice, temperature=temperature)
            new = now.logprobs[turn.choice.chosen]
            choice = _decision(turn.choice.logprob, new, each[0].value, earned[0] if earned else None, clip_range)
            replies = self._replies(turn.choice, now)
        is_used = stage != "inference"
        return TurnInspected(
            episode=episode,
            turn=number,
            stage=stage,
            turns=len(trajectory.earlier) + len(trajectory.turns),
            said_by_policy=turn.is_trained,
            sampled_by=trajectory.policy_version,
            policy=self._policy.version,
            update=used.update if used else 0,
            clip_range=clip_range,
            credit=credit,
            temperature=temperature,
            reward=turn.reward,
            before=self._before(segment, turn),
            tokens=self._tokens(place, each, earned, clip_range),
            after=self._after(segment, turn),
            conversation=len(segment.prefix) + len(segment.ids),
            with_loss=sum(segment.mask) * is_used,
            sampled=sum(len(each.logprobs) for each in segment.turns if each.is_trained) * is_used,
            choice=choice,
            replies=replies,
        )

    def _tokens(
        self, place: _Place, each: list[TokenNow], earned: list[Earned], clip_range: float
    ) -> list[InspectedToken]:
        turn = place.turn
        ids = place.segment.ids[turn.start : turn.end]
        admissible = [*self._policy.trie_of(turn.actions).continuations(ids), *[()] * len(ids)]
        found = []
        for at, (token, now) in enumerate(zip(ids, each, strict=True)):
            old = turn.logprobs[at] if turn.is_trained else None
            if turn.choice is None:
                decision = _decision(old, now.logprob, now.value, earned[at] if earned else None, clip_range)
            else:  # the reply was chosen whole: its tokens are no decisions
                decision = _decision(old, now.logprob, None, None, clip_range)
            others = [
                Alternative(
                    token=other.token,
                    text=self._text(other.token),
                    probability=other.probability,
                    admissible=other.token in admissible[at],
                )
                for other in now.alternatives
            ]
            found.append(InspectedToken(token=token, text=self._text(token), decision=decision, alternatives=others))
        return found

    def _replies(self, choice: Choice, now: ChoiceNow) -> list[ScoredReply]:
        order = sorted(range(len(choice.replies)), key=lambda reply: -now.logprobs[reply])
        kept = order[:MOST_REPLIES]
        if choice.chosen not in kept:
            kept[-1] = choice.chosen
        return [
            ScoredReply(
                text=self._policy.chat.text(choice.replies[reply]),
                score=now.scores[reply],
                probability=math.exp(now.logprobs[reply]),
                chosen=reply == choice.chosen,
            )
            for reply in kept
        ]

    def _before(self, segment: Segment, turn: Turn) -> list[ContextToken]:
        ids = [*segment.prefix, *segment.ids[: turn.start]]
        trained = [*[False] * len(segment.prefix), *segment.mask[: turn.start]]
        return self._context(ids[-BEFORE:], trained[-BEFORE:])

    def _after(self, segment: Segment, turn: Turn) -> list[ContextToken]:
        end = min([turn.end + AFTER, *[other.start for other in segment.turns if other.start >= turn.end]])
        return self._context(segment.ids[turn.end : end], segment.mask[turn.end : end])

    def _context(self, ids: list[int], trained: list[bool]) -> list[ContextToken]:
        return [
            ContextToken(text=self._text(token), trained=is_trained)
            for token, is_trained in zip(ids, trained, strict=True)
        ]

    def _text(self, token: int) -> str:
        from llamagym_tui.engine.learning.inspection import token_text

        return token_text(self._policy.chat.tokenizer, token)


def _has(trajectory: Trajectory, turn: int) -> bool:
    """Whether a turn is of this part of its episode, or comes after an episode's end."""
    first = len(trajectory.earlier)
    return first <= turn and (not trajectory.goes_on or turn < first + len(trajectory.turns))


def _place(trajectory: Trajectory, number: int) -> _Place | None:
    """Where a turn of an episode stands; None: there is none of that number."""
    first = len(trajectory.earlier)
    for segment in trajectory.segments:
        if first <= number < first + len(segment.turns):
            return _Place(trajectory, number, segment, segment.turns[number - first])
        first += len(segment.turns)
    return None


def _decision(
    old: float | None, new: float, value_now: float | None, earned: Earned | None, clip_range: float
) -> Decision:
    """Log-probabilities, and what an update made of them; without a value now, it was no decision by itself."""
    from llamagym_tui.engine.learning.inspection import is_clipped

    ratio = None if old is None or value_now is None else _ratio(new - old)
    clipped = None if ratio is None or earned is None else is_clipped(ratio, earned.advantage, clip_range)
    return Decision(
        old=old,
        new=new,
        ratio=ratio,
        clipped=clipped,
        value=earned.value if earned else None,
        value_now=value_now,
        target=earned.target if earned else None,
        advantage=earned.advantage if earned else None,
    )


def _ratio(log_ratio: float) -> float:
    """exp of it; infinite where that has no number."""
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


def _not_kept(episode: int) -> str:
    return (
        f"Episode {episode:,} is of another time: only tokens of the last two batches, of the one under way and of "
        "some watched in inference mode are kept."
    )
