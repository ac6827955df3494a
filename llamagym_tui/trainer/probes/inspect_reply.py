"""Looks at a turn: how probable each action is before the reply, and the reply token by token.

Both score under the policy as it is now, by forwards of their own; they change nothing, and draw nothing. Replies are
inspected of episodes under way, of the batch under way, and of the last two updates.
"""

import logging
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.learning.figures import Earned, UsedBatch, is_clipped
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import (
    probabilities_of_actions,
    reply_logprobs,
    score_logprobs,
)
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.protocol.events import ActionsProbed, ConversationProbed, Stage, TurnInspected
from llamagym_tui.protocol.inspected import (
    Alternative,
    Decision,
    InspectedToken,
    PeerGroup,
    ScoredReply,
    token_text,
)
from llamagym_tui.trainer.rollout.rollout import PendingPrompt, Rollout

log = logging.getLogger(__name__)


class ActionProbes:
    """Probabilities of the actions, each prompt once under the same weights."""

    def __init__(self, agent: AgentBase, policy: Policy) -> None:
        self._policy = policy
        self._agent_names = list(agent.action_names) if policy.trie else []
        self._last: tuple[PendingPrompt, int] | None = None
        """The last prompt and the version of the policy. None: there is none."""

    def probe(self, where: PendingPrompt) -> ActionsProbed | None:
        """None if that was done already, or there are no actions to name."""
        about = (where, self._policy.version)
        names = self._names(where.actions)
        if not names or self._last == about:
            return None
        try:
            shares = self._shares(where.prompt, where.actions)
        except Exception:  # its forward is not the run's: memory may be short for it alone
            log.exception("no action probabilities")
            return None
        self._last = about
        return ActionsProbed(episode=where.episode, turn=where.turn, names=names, shares=shares)

    def probe_conversation(self, question: ProbeActions) -> ConversationProbed:
        """The actions after a conversation that a person plays, or why they are not known."""
        actions = tuple(question.messages[-1].get("actions", ())) or None
        names = self._names(actions)
        shares: list[float] = []
        why_not = ""
        try:
            if names:
                shares = self._shares(prompt_after(self._policy, question.messages), actions)
        except PromptTooLongError as error:
            why_not = f"{error}"
        except Exception as error:
            # A person may play on for longer than the model can read; the run does not.
            log.exception("no action probabilities for a conversation")
            why_not = f"the forward failed: {type(error).__name__}: {error}"
        return ConversationProbed(
            ticket=question.ticket,
            names=[] if why_not else names,
            shares=shares,
            why_not=why_not,
        )

    def _names(self, actions: tuple[str, ...] | None) -> list[str]:
        return self._agent_names if actions is None else list(actions)

    @own_torch()
    def _shares(self, prompt: Opening, actions: tuple[str, ...] | None) -> list[float]:
        return probabilities_of_actions(self._policy, [prompt], self._policy.trie_of(actions))[0]


MOST_ALTERNATIVES = 8
"""Alternatives of a token that are reported, in addition to admissible ones."""
MOST_REPLIES = 64
"""Scored replies that are reported."""


class _Unknown(Exception):
    """A reply is not there to be inspected; the message says why."""


class ReplyInspector:
    def __init__(self, policy: Policy, learner: PPO, rollout: Rollout) -> None:
        self._policy = policy
        self._learner = learner
        self._rollout = rollout

    @own_torch()
    @torch.no_grad()
    def inspect(self, episode: int, turn: int) -> TurnInspected:
        """The report of a reply, or why there is none; episode and turn count from 0."""
        try:
            return self._inspected(episode, turn)
        except _Unknown as error:
            why_not = f"{error}"
        except Exception as error:  # its forward is not the run's: memory may be short for it alone
            log.exception("a reply was not inspected")
            why_not = f"{type(error).__name__}: {error}."
        return TurnInspected(episode=episode, turn=turn, why_not=why_not)

    def _inspected(self, episode: int, number: int) -> TurnInspected:
        used, trajectory, stage = self._found(episode, number)
        segment, turn = _place(trajectory, number)
        settings = used.config if used else self._learner.config
        temperature = used.temperature if used else self._policy.generation.temperature
        earned: Earned | None = None
        groups: list[PeerGroup] = []
        if used and turn.is_trained:
            at = number - len(trajectory.earlier)
            earned = used.earned(trajectory, at)
            groups = [PeerGroup(**each._asdict()) for each in used.peers(trajectory, at)]
        logits, value = self._forward(segment, turn)
        new = logits.log_softmax(-1)
        decisions = []
        choice = None
        replies: list[ScoredReply] = []
        if turn.choice is None:
            new = (logits / temperature).log_softmax(-1)
        else:
            logprobs, replies = self._scored(segment, turn, turn.choice, temperature)
            choice = _decision(
                turn.choice.logprob,
                logprobs[turn.choice.chosen],
                value,
                earned,
                settings.clip_range,
            )
        ids = segment.ids[turn.start : turn.end]
        for index, token in enumerate(ids):
            old = turn.logprobs[index] if turn.is_trained else None
            logprob = float(new[index, token])
            if turn.choice is not None:  # it was chosen whole: its tokens are no decisions
                decisions.append(Decision(old=old, new=logprob))
            else:
                decisions.append(_decision(old, logprob, value, earned, settings.clip_range))
        return TurnInspected(
            episode=episode,
            turn=number,
            stage=stage,
            turns=len(trajectory.earlier) + len(trajectory.turns),
            said_by_policy=turn.is_trained,
            sampled_by=trajectory.policy_version,
            policy=self._policy.version,
            clip_range=settings.clip_range,
            learner=settings.learner,
            groups=groups,
            temperature=temperature,
            tokens=self._tokens(ids, turn, new, decisions),
            choice=choice,
            replies=replies,
        )

    def _found(self, episode: int, turn: int) -> tuple[UsedBatch | None, Trajectory, Stage]:
        """A turn's part of its episode, and the last update's batch that it was in, if any.

        Raises:
            _Unknown: it is not kept.
        """
        for batch in reversed(self._learner.used):
            for trajectory in batch.trajectories:
                if trajectory.episode == episode and _has(trajectory, turn):
                    return batch, trajectory, "trained"
        recalled = self._rollout.recall(episode)
        if recalled is None or turn < len(recalled[0].earlier):
            raise _Unknown(
                f"The tokens of episode {episode:,} are not kept: only those of the last few batches, the batch under "
                "way, and some episodes that were watched in inference mode are."
            )
        return None, *recalled

    def _forward(self, segment: Segment, turn: Turn) -> tuple[Tensor, float | None]:
        """(T, V) logits of a reply's tokens, and the value before it; None without a critic."""
        row = [*segment.prefix, *segment.ids[: turn.end - 1]]
        behind_prefix = slice(len(segment.prefix), None)
        backbone = self._policy.model.backbone
        encoded = backbone.encode_rows([row]).picked(slice(None), behind_prefix)
        places = torch.arange(turn.start - 1, turn.end - 1, device=encoded.hidden.device)
        value: float | None = None
        if self._policy.has_critic:
            value = float(self._policy.model.v_head(encoded.hidden[0, turn.start - 1]))
        return encoded.logits_at(torch.zeros_like(places), places), value

    def _scored(
        self, segment: Segment, turn: Turn, choice: Choice, temperature: float
    ) -> tuple[list[float], list[ScoredReply]]:
        """Log-probabilities of the replies among which one was chosen, and the most probable of them."""
        prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
        trie = self._policy.trie_of(turn.actions)
        if trie.replies != choice.replies:
            trie = ActionTrie(choice.replies)
        sums = reply_logprobs(self._policy, [prompt], trie)[0]
        divisors = torch.tensor(choice.divisors, device=sums.device)  # those of then
        scores = (sums / divisors).tolist()
        logprobs = score_logprobs(sums, divisors, temperature).tolist()
        kept = sorted(range(len(logprobs)), key=lambda reply: -logprobs[reply])[:MOST_REPLIES]
        if choice.chosen not in kept:
            kept[-1] = choice.chosen
        return logprobs, [
            ScoredReply(
                text=self._policy.chat.text(choice.replies[reply]),
                score=scores[reply],
                probability=math.exp(logprobs[reply]),
                chosen=reply == choice.chosen,
            )
            for reply in kept
        ]

    def _tokens(
        self, ids: Sequence[int], turn: Turn, logprobs: Tensor, decisions: Sequence[Decision]
    ) -> list[InspectedToken]:
        continuations = self._policy.trie_of(turn.actions).continuations(ids)
        found = []
        for index, token in enumerate(ids):
            # Past the place where a reply leaves the admissible ones nothing continues it.
            admissible = continuations[index] if index < len(continuations) else ()
            found.append(
                InspectedToken(
                    token=token,
                    text=token_text(self._policy.chat.tokenizer, token),
                    decision=decisions[index],
                    alternatives=self._alternatives(logprobs[index], token, admissible),
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
                text=token_text(self._policy.chat.tokenizer, token),
                probability=share,
                admissible=token in admissible,
            )
            for token, share in sorted(shares.items(), key=lambda each: (-each[1], each[0]))
        ]


def _has(trajectory: Trajectory, turn: int) -> bool:
    """The turn is in this part of its episode, or comes after the episode's end."""
    first = len(trajectory.earlier)
    if turn < first:
        return False
    return not trajectory.goes_on or turn < first + len(trajectory.turns)


def _place(trajectory: Trajectory, number: int) -> tuple[Segment, Turn]:
    """The segment of a turn, and the turn. Raises _Unknown: there is none of that number."""
    first = len(trajectory.earlier)
    for segment in trajectory.segments:
        if first <= number < first + len(segment.turns):
            return segment, segment.turns[number - first]
        first += len(segment.turns)
    raise _Unknown(f"Reply {number + 1} has not come yet.")


def _decision(
    old: float | None,
    new: float,
    value_now: float | None,
    earned: Earned | None,
    clip_range: float,
) -> Decision:
    """Log-probabilities, and what an update made of them."""
    ratio = None if old is None else _ratio(new - old)
    if earned is None:
        return Decision(old=old, new=new, ratio=ratio, value_now=value_now)
    return Decision(
        old=old,
        new=new,
        ratio=ratio,
        clipped=None if ratio is None else is_clipped(ratio, earned.advantage, clip_range),
        value=earned.value,
        value_now=value_now,
        target=earned.target,
        advantage=earned.advantage,
    )


def _ratio(log_ratio: float) -> float:
    """exp of it; infinite where that has no number."""
    return math.exp(log_ratio) if log_ratio < 700 else math.inf
