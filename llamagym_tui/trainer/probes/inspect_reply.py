"""Inspects replies token by token: of episodes under way, of the batch under way, and of the last two updates.

It scores a reply under the policy as it is now and adds what was kept; it changes nothing, and draws nothing.
"""

import logging
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.inspection import Earned, UsedBatch, is_clipped
from llamagym_tui.engine.learning.learner import Learner
from llamagym_tui.engine.learning.scoring import reply_logprobs
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.decisions import score_logprobs
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.protocol.events import Stage, TurnInspected
from llamagym_tui.protocol.inspected import (
    Alternative,
    ContextToken,
    Decision,
    InspectedToken,
    ScoredReply,
)
from llamagym_tui.trainer.rollout.rollout import Rollout

MOST_ALTERNATIVES = 8
"""Alternatives of a token that are reported, in addition to admissible ones."""
MOST_REPLIES = 64
"""Scored replies that are reported."""
BEFORE, AFTER = 64, 24
"""Tokens reported before and after a reply."""
PLACES_AT_ONCE = 32
"""Tokens whose logits over the vocabulary are held at once."""
log = logging.getLogger(__name__)


class _Place(NamedTuple):
    trajectory: Trajectory
    number: int
    segment: Segment
    turn: Turn


class ReplyInspector:
    def __init__(self, policy: Policy, learner: Learner, rollout: Rollout) -> None:
        self._policy, self._learner, self._rollout = policy, learner, rollout

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
            return TurnInspected(
                episode=episode, turn=turn, why_not=f"{type(error).__name__}: {error}."
            )

    def _used(self, episode: int, turn: int) -> tuple[UsedBatch, Trajectory] | None:
        pairs = ((batch, each) for batch in reversed(self._learner.used) for each in batch.trajectories)
        return next(
            (pair for pair in pairs if pair[1].episode == episode and _has(pair[1], turn)), None
        )

    @torch.no_grad()
    def _inspected(
        self, episode: int, place: _Place, stage: Stage, used: UsedBatch | None
    ) -> TurnInspected:
        trajectory, number, segment, turn = place
        temperature = used.temperature if used else self._policy.generation.temperature
        clip_range = used.clip_range if used else self._learner.config.clip_range
        earned = (
            used.earned(trajectory, number - len(trajectory.earlier))
            if used and turn.is_trained
            else []
        )
        credit = used.credit if used else self._learner.config.credit
        model = self._policy.model
        encoded = model.backbone.encode_rows(segment.prefix, [segment.ids[: turn.end - 1]])
        values = model.v_head(encoded.hidden[0, turn.start - 1 :]).tolist()
        if credit == "turn":
            values = values[:1] * len(values)  # the one before its first token
        choice, replies, divisor, of_tokens = (
            None,
            list[ScoredReply](),
            temperature,
            list[float | None](values),
        )
        if turn.choice is not None:  # the reply was chosen whole: its tokens are no decisions
            prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
            sums = reply_logprobs(self._policy, [prompt], turn.choice.replies, temperature=1.0)[0]
            divisors = torch.tensor(turn.choice.divisors, device=sums.device)  # those of then
            logprobs = score_logprobs(sums, divisors, temperature).tolist()
            replies = self._replies(turn.choice, (sums / divisors).tolist(), logprobs)
            new, used_for = logprobs[turn.choice.chosen], earned[0] if earned else None
            choice = _decision(turn.choice.logprob, new, values[0], used_for, clip_range)
            earned, divisor, of_tokens = [], 1.0, [None] * len(values)
        is_used = stage != "inference"
        return TurnInspected(
            episode=episode,
            turn=number,
            stage=stage,
            turns=len(trajectory.earlier) + len(trajectory.turns),
            said_by_policy=turn.is_trained,
            sampled_by=trajectory.policy_version,
            policy=self._policy.version,
            clip_range=clip_range,
            credit=credit,
            temperature=temperature,
            before=self._before(segment, turn),
            tokens=self._tokens(place, encoded, divisor, of_tokens, earned, clip_range),
            after=self._after(segment, turn),
            conversation=len(segment.prefix) + len(segment.ids),
            with_loss=sum(segment.mask) * is_used,
            sampled=sum(len(each.logprobs) for each in segment.turns if each.is_trained) * is_used,
            choice=choice,
            replies=replies,
        )

    def _tokens(
        self,
        place: _Place,
        encoded: Encoded,
        temperature: float,
        values: list[float | None],
        earned: list[Earned],
        clip_range: float,
    ) -> list[InspectedToken]:
        """Each token of a reply, of which all that stands before it is encoded."""
        turn = place.turn
        ids = place.segment.ids[turn.start : turn.end]
        admissible = [*self._policy.trie_of(turn.actions).continuations(ids), *[()] * len(ids)]
        places = torch.arange(turn.start - 1, turn.end - 1, device=encoded.hidden.device)
        found: list[InspectedToken] = []
        for part in places.split(PLACES_AT_ONCE):
            logits = encoded.logits_at(torch.zeros_like(part), part)
            for logprobs in (logits / temperature).log_softmax(-1):
                at = len(found)
                token, old = ids[at], turn.logprobs[at] if turn.is_trained else None
                new, used = float(logprobs[token]), earned[at] if earned else None
                decision = _decision(old, new, values[at], used, clip_range)
                others = self._alternatives(logprobs, token, admissible[at])
                text = self._text(token)
                found.append(
                    InspectedToken(token=token, text=text, decision=decision, alternatives=others)
                )
        return found

    def _alternatives(
        self, logprobs: Tensor, own: int, admissible: tuple[int, ...]
    ) -> list[Alternative]:
        top = logprobs.topk(min(MOST_ALTERNATIVES, len(logprobs))).indices.tolist()
        shares = {token: float(logprobs[token].exp()) for token in {own, *top, *admissible}}
        return [
            Alternative(
                token=token,
                text=self._text(token),
                probability=share,
                admissible=token in admissible,
            )
            for token, share in sorted(shares.items(), key=lambda each: (-each[1], each[0]))
        ]

    def _replies(
        self, choice: Choice, scores: list[float], logprobs: list[float]
    ) -> list[ScoredReply]:
        kept = sorted(range(len(logprobs)), key=lambda reply: -logprobs[reply])[:MOST_REPLIES]
        if choice.chosen not in kept:
            kept[-1] = choice.chosen
        return [
            ScoredReply(
                text=self._policy.chat.text(choice.replies[reply]),
                score=scores[reply],
                probability=math.exp(logprobs[reply]),
                chosen=reply == choice.chosen,
            )
            for reply in kept
        ]

    def _before(self, segment: Segment, turn: Turn) -> list[ContextToken]:
        ids = [*segment.prefix, *segment.ids[: turn.start]]
        trained = [*[False] * len(segment.prefix), *segment.mask[: turn.start]]
        return self._context(ids[-BEFORE:], trained[-BEFORE:])

    def _after(self, segment: Segment, turn: Turn) -> list[ContextToken]:
        end = min(
            [turn.end + AFTER, *[other.start for other in segment.turns if other.start >= turn.end]]
        )
        return self._context(segment.ids[turn.end : end], segment.mask[turn.end : end])

    def _context(self, ids: list[int], trained: list[bool]) -> list[ContextToken]:
        return [
            ContextToken(text=self._text(token), trained=is_trained)
            for token, is_trained in zip(ids, trained, strict=True)
        ]

    def _text(self, token: int) -> str:
        """A token as text: special ones by their names, the space before a word included."""
        tokenizer = self._policy.chat.tokenizer
        text = str(tokenizer.decode([token], skip_special_tokens=False))
        # SentencePiece marks the space before a word, and leaves it out where it decodes one token alone.
        marked = str(tokenizer.convert_ids_to_tokens(token)).startswith("\u2581")
        return f" {text}" if marked and not text.startswith(" ") else text


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
    ratio = None if old is None or value_now is None else _ratio(new - old)
    clipped = (
        None if ratio is None or earned is None else is_clipped(ratio, earned.advantage, clip_range)
    )
    figures: Any = earned._asdict() if earned else dict.fromkeys(Earned._fields)
    return Decision(old=old, new=new, ratio=ratio, clipped=clipped, value_now=value_now, **figures)


def _ratio(log_ratio: float) -> float:
    """exp of it; infinite where that has no number."""
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


def _not_kept(episode: int) -> str:
    return (
        f"Episode {episode:,} is of another time: only tokens of the last two batches, of the one under way and of "
        "some watched in inference mode are kept."
    )
