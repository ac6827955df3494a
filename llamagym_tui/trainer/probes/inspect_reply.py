"""Inspects replies token by token: of episodes under way, of the batch under way, and of the last two updates.

It scores a reply under the policy as it is now and adds what was kept; it changes nothing, and draws nothing.
"""

import logging
import math
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.figures import Earned, UsedBatch, is_clipped
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import reply_logprobs, score_logprobs
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.protocol.events import Stage, TurnInspected
from llamagym_tui.protocol.inspected import (
    Alternative,
    Decision,
    InspectedToken,
    PeerGroup,
    ScoredReply,
)
from llamagym_tui.trainer.rollout.rollout import Rollout

MOST_ALTERNATIVES = 8
"""Alternatives of a token that are reported, in addition to admissible ones."""
MOST_REPLIES = 64
"""Scored replies that are reported."""
PLACES_AT_ONCE = 32
"""Tokens whose logits over the vocabulary are held at once."""
log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where a turn stands."""

    trajectory: Trajectory
    number: int
    """Index of the turn in its episode."""
    segment: Segment
    turn: Turn


class _Chosen(NamedTuple):
    """The report of a reply that was chosen whole."""

    decision: Decision
    replies: list[ScoredReply]


class ReplyInspector:
    def __init__(self, policy: Policy, learner: PPO, rollout: Rollout) -> None:
        self._policy = policy
        self._learner = learner
        self._rollout = rollout

    @own_torch()
    def inspect(self, episode: int, turn: int) -> TurnInspected:
        """The report of a reply, or why there is none; episode and turn count from 0."""
        stage: Stage = "trained"
        batch: UsedBatch | None = None
        if used := self._used(episode, turn):
            batch, trajectory = used
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
            return self._inspected(episode, place, stage, batch)
        except Exception as error:  # its forward is not the run's: memory may be short for it alone
            log.exception("a reply was not inspected")
            return TurnInspected(
                episode=episode, turn=turn, why_not=f"{type(error).__name__}: {error}."
            )

    def _used(self, episode: int, turn: int) -> tuple[UsedBatch, Trajectory] | None:
        """A turn's episode and the batch of it that an update used, the last one first; None: none did."""
        for batch in reversed(self._learner.used):
            for trajectory in batch.trajectories:
                if trajectory.episode == episode and _has(trajectory, turn):
                    return batch, trajectory
        return None

    @torch.no_grad()
    def _inspected(
        self, episode: int, place: _Place, stage: Stage, used: UsedBatch | None
    ) -> TurnInspected:
        trajectory, number, segment, turn = place
        config = used.config if used else self._learner.config
        temperature = used.temperature if used else self._policy.generation.temperature
        clip_range = config.clip_range
        earned: Earned | None = None
        groups: list[PeerGroup] = []
        if used and turn.is_trained:
            earned = used.earned(trajectory, number - len(trajectory.earlier))
            peers = used.peers(trajectory, number - len(trajectory.earlier))
            groups = [PeerGroup(**each._asdict()) for each in peers]
        model = self._policy.model
        row = [*segment.prefix, *segment.ids[: turn.end - 1]]
        behind_prefix = slice(len(segment.prefix), None)
        encoded = model.backbone.encode_rows([row]).picked(slice(None), behind_prefix)
        value: float | None = None
        if self._policy.has_critic:
            value = float(model.v_head(encoded.hidden[0, turn.start - 1]))
        if turn.choice is None:
            chosen = None
            tokens = self._tokens(place, encoded, temperature, value, earned, clip_range)
        else:
            chosen = self._chosen(place, turn.choice, temperature, value, earned, clip_range)
            # The reply was chosen whole: its tokens are no decisions.
            tokens = self._tokens(place, encoded, 1.0, None, None, clip_range)
        with_loss = 0
        sampled = 0
        if stage != "inference":
            with_loss = sum(segment.mask)
            sampled = sum(len(each.logprobs) for each in segment.turns if each.is_trained)
        return TurnInspected(
            episode=episode,
            turn=number,
            stage=stage,
            turns=len(trajectory.earlier) + len(trajectory.turns),
            said_by_policy=turn.is_trained,
            sampled_by=trajectory.policy_version,
            policy=self._policy.version,
            clip_range=clip_range,
            learner=config.learner,
            groups=groups,
            temperature=temperature,
            tokens=tokens,
            conversation=len(segment.prefix) + len(segment.ids),
            with_loss=with_loss,
            sampled=sampled,
            choice=chosen.decision if chosen else None,
            replies=chosen.replies if chosen else [],
        )

    def _chosen(
        self,
        place: _Place,
        choice: Choice,
        temperature: float,
        value: float | None,
        earned: Earned | None,
        clip_range: float,
    ) -> _Chosen:
        """A reply that was chosen by its score, among those that it was chosen from."""
        segment = place.segment
        prompt = Opening(segment.prefix, tuple(segment.ids[: place.turn.start]))
        trie = self._policy.trie_of(place.turn.actions)
        if trie.replies != choice.replies:
            trie = ActionTrie(choice.replies)
        sums = reply_logprobs(self._policy, [prompt], trie)[0]
        divisors = torch.tensor(choice.divisors, device=sums.device)  # those of then
        scores = (sums / divisors).tolist()
        logprobs = score_logprobs(sums, divisors, temperature).tolist()
        new = logprobs[choice.chosen]
        decision = _decision(choice.logprob, new, value, earned, clip_range)
        return _Chosen(decision, self._replies(choice, scores, logprobs))

    def _tokens(
        self,
        place: _Place,
        encoded: Encoded,
        temperature: float,
        value: float | None,
        earned: Earned | None,
        clip_range: float,
    ) -> list[InspectedToken]:
        """Each token of a reply, of which all that stands before it is encoded."""
        turn = place.turn
        ids = place.segment.ids[turn.start : turn.end]
        continuations = self._policy.trie_of(turn.actions).continuations(ids)
        places = torch.arange(turn.start - 1, turn.end - 1, device=encoded.hidden.device)
        found: list[InspectedToken] = []
        for part in places.split(PLACES_AT_ONCE):
            logits = encoded.logits_at(torch.zeros_like(part), part)
            for logprobs in (logits / temperature).log_softmax(-1):
                at = len(found)
                token = ids[at]
                decision = _decision(
                    old=turn.logprobs[at] if turn.is_trained else None,
                    new=float(logprobs[token]),
                    value_now=value,
                    earned=earned,
                    clip_range=clip_range,
                    decides=turn.choice is None,
                )
                # Past the place where a reply leaves the admissible ones nothing continues it.
                admissible = continuations[at] if at < len(continuations) else ()
                found.append(
                    InspectedToken(
                        token=token,
                        text=self._text(token),
                        decision=decision,
                        alternatives=self._alternatives(logprobs, token, admissible),
                    )
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

    def _text(self, token: int) -> str:
        """A token as text: special ones by their names, the space before a word included."""
        tokenizer = self._policy.chat.tokenizer
        text = str(tokenizer.decode([token], skip_special_tokens=False))
        # SentencePiece marks the space before a word, and leaves it out where it decodes one token alone.
        marked = str(tokenizer.convert_ids_to_tokens(token)).startswith("\u2581")
        return f" {text}" if marked and not text.startswith(" ") else text


def _has(trajectory: Trajectory, turn: int) -> bool:
    """The turn is in this part of its episode, or comes after the episode's end."""
    first = len(trajectory.earlier)
    if turn < first:
        return False
    return not trajectory.goes_on or turn < first + len(trajectory.turns)


def _place(trajectory: Trajectory, number: int) -> _Place | None:
    """Where a turn of an episode stands; None: there is none of that number."""
    first = len(trajectory.earlier)
    for segment in trajectory.segments:
        if first <= number < first + len(segment.turns):
            return _Place(trajectory, number, segment, segment.turns[number - first])
        first += len(segment.turns)
    return None


def _decision(
    old: float | None,
    new: float,
    value_now: float | None,
    earned: Earned | None,
    clip_range: float,
    *,
    decides: bool = True,
) -> Decision:
    """Log-probabilities, and what an update made of them; one that is no decision by itself has no ratio."""
    ratio = None
    if old is not None and decides:
        ratio = _ratio(new - old)
    clipped = None
    if ratio is not None and earned is not None:
        clipped = is_clipped(ratio, earned.advantage, clip_range)
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
        f"The tokens of episode {episode:,} are not kept: those of the last two batches are, those of the batch under "
        "way, and those of some episodes that were watched in inference mode."
    )
