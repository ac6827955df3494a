"""Builds a trajectory turn by turn: the next prompt, and the record of each reply.

The vectorised trainer, LlamaGym's loop and supervised training share this builder, which alone knows which turns a
prompt has: the last ones that the policy's `history` keeps, and of these as many as the model can read. While that is
the whole conversation, turns share a segment, unless the template rewrites history; else each turn is one of its own.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import End, Segment, Trajectory, Turn
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.game.chat import ChatMessage, Conversation, assistant, opening, user

Actions = tuple[str, ...] | None
"""Names of the actions that are admissible on an observation. None: those of every turn."""


class _Next(NamedTuple):
    """The prompt after an observation."""

    segment: Segment
    """The current one, or a new and empty one."""
    new: Sequence[int]
    """Ids that come behind it."""
    first: int
    """Turn that it begins with."""
    tokens: int
    """Of the whole prompt."""


class Episode:
    """One episode under one system prompt and one policy version."""

    def __init__(self, policy: Policy, system_prompt: str, wording: int = 0) -> None:
        self.policy = policy
        self.wording = wording
        """The number of the wording of its observations."""
        self.kept_back: Opening | None = None
        """The next prompt in the wording that is kept for evaluations, which is only read. None: it is not to be."""
        self.conversation: Conversation = opening(system_prompt)
        self.system_prompt = system_prompt
        self.history = policy.history
        """Turns before the present one that a prompt has. None: all."""
        self.segments: list[Segment] = []
        self.cut_at = 0
        """Segments at first that are in earlier batches."""
        self._policy_version = policy.version
        """The version of the policy that sampled what is in no batch yet, at its beginning."""
        self._said: list[tuple[str, tuple[int, ...]]] = []
        """The observation and the ids of the reply of each turn."""
        self._first = 0
        """Turn that the current segment begins with."""
        self._actions: Actions = None
        """Names of the actions that are admissible on the last observation."""
        self._prepared: tuple[str, Actions, int, _Next] | None = None
        """The last result of `_next`, with the observation and the number of turns that it was made for."""

    @property
    def turns(self) -> int:
        return len(self._said)

    @property
    def trie(self) -> ActionTrie:
        """The admissible replies to the last observation."""
        return self.policy.trie_of(self._actions)

    def observe(self, observation: str, actions: Actions = None) -> Opening:
        """Add an observation; all ids before the reply to it."""
        segment, new, first, _ = self._next(observation, actions)
        self._first = first
        self._actions = actions
        self._prepared = None
        self.conversation.append(user(observation))
        if segment is not self._current:
            if len(self.segments) == self.cut_at:
                self._policy_version = self.policy.version
            self.segments.append(segment)
        segment.ids += new
        return Opening(segment.prefix, tuple(segment.ids))

    def prompt_for(self, observation: str, actions: Actions = None) -> Opening:
        """All ids before the reply to an observation, without adding it."""
        segment, new, _, _ = self._next(observation, actions)
        return Opening(segment.prefix, (*segment.ids, *new))

    def require_fit(self, observation: str, actions: Actions = None) -> None:
        """Raises PromptTooLongError if the model cannot read it even without earlier turns; adds nothing."""
        self.policy.require_fit(
            self._next(observation, actions).tokens, self.policy.trie_of(actions)
        )

    def left_out(self, observation: str, actions: Actions = None) -> int:
        """The number of turns within `history` that do not fit into the model's context."""
        return self._next(observation, actions).first - self._earliest

    def reply(self, reply: Reply) -> str:
        """Keep a sampled reply; its text."""
        return self._add_turn(reply, is_trained=True)

    def add_untrained_reply(self, text: str, *, value: float = 0.0) -> str:
        """Keep a reply of someone else in the policy's place: it earns rewards and has no loss; its text.

        `value` is V at the prompt's last token.
        """
        ids = list(self.policy.chat.reply_ids(text))
        return self._add_turn(
            Reply(ids=ids, logprobs=[0.0] * len(ids), value=value, ended=True), is_trained=False
        )

    def _add_turn(self, reply: Reply, *, is_trained: bool) -> str:
        segment = self.segments[-1]
        start = len(segment.ids)
        segment.ids += reply.ids
        segment.turns.append(
            Turn(
                start=start,
                end=len(segment.ids),
                logprobs=tuple(reply.logprobs),
                value=reply.value,
                reward=0.0,
                is_trained=is_trained,
                branches=self.trie.branches(reply.ids) if is_trained else (),
                choice=reply.choice,
                observation=self.conversation[-1]["content"],
                actions=self._actions,
                wording=self.wording,
                kept_back=self.kept_back,
            )
        )
        self.kept_back = None
        text = self.policy.chat.reply(reply.ids)
        self._said.append((self.conversation[-1]["content"], tuple(reply.ids)))
        self.conversation.append(assistant(text))
        return text

    def reward(
        self, reward: float, *, parse_failed: bool = False, refused: bool = False, steps: int = 1
    ) -> None:
        """Credit a reward to the last turn; more than one add up.

        Args:
            parse_failed: True if its reply named no action.
            refused: True if the environment refused the action.
            steps: of the environment, for the action.
        """
        turns = self.segments[-1].turns
        last = turns[-1]
        names_none = last.parse_failed or parse_failed
        turns[-1] = replace(
            last,
            reward=last.reward + reward,
            parse_failed=names_none,
            # Of a reply that names none it was the fallback that was refused.
            refused=(last.refused or refused) and not names_none,
            steps=max(last.steps, steps),
        )

    def finish(self, end: End, final_observation: str | None = None) -> Trajectory:
        """The trajectory; a truncated one needs the true final observation for its bootstrap."""
        # A time limit cut the episode off; it would have gone on, so its return is completed by V of the observation
        # that came last, not of the one after the reset, which belongs to the next episode.
        final = None
        if end == "truncated" and final_observation is not None:
            try:
                self.require_fit(final_observation)
                final = self.prompt_for(final_observation)
            except PromptTooLongError:  # the last prompt that was read is the nearest estimate
                last = self.segments[-1]
                final = Opening(last.prefix, tuple(last.ids[: last.turns[-1].start]))
        earlier = [turn for segment in self.segments[: self.cut_at] for turn in segment.turns]
        new = self.segments[self.cut_at :]
        return Trajectory(
            segments=new,
            end=end,
            final_prompt=final,
            policy_version=self._policy_version,
            earlier=earlier,
        )

    @property
    def can_be_cut(self) -> bool:
        """True if there are turns since the last cut, and prompts have no earlier turns."""
        return (
            self.history == 0 and len(self.segments) > self.cut_at and bool(self.segments[-1].turns)
        )

    @property
    def own_turns(self) -> int:
        """Turns since the last cut that the policy chose."""
        return sum(
            turn.is_trained for segment in self.segments[self.cut_at :] for turn in segment.turns
        )

    def cut(self, observation: str) -> Trajectory:
        """The turns since the last cut, truncated before this observation. The episode goes on."""
        part = self.finish("truncated", observation)
        part.goes_on = True
        self.cut_at = len(self.segments)
        return part

    @property
    def _current(self) -> Segment | None:
        return self.segments[-1] if self.segments else None

    @property
    def _earliest(self) -> int:
        """Turn that the next prompt begins with if it fits."""
        return 0 if self.history is None else max(0, self.turns - self.history)

    def _next(self, observation: str, actions: Actions) -> _Next:
        """The prompt with the last turns that it may have and the model can read."""
        key = (observation, actions, self.turns)
        if self._prepared is None or self._prepared[:3] != key:
            # A prompt only grows, so what did not fit before does not fit now.
            first = max(self._first, self._earliest)
            made = self._beginning_with(first, observation)
            while first < self.turns and not self.policy.fits(
                made.tokens, self.policy.trie_of(actions)
            ):
                first += 1
                made = self._beginning_with(first, observation)
            self._prepared = (*key, made)
        return self._prepared[3]

    def _beginning_with(self, first: int, observation: str) -> _Next:
        """The prompt that begins with a certain turn, even if the model cannot read it."""
        chat = self.policy.chat
        if self._current is not None and first == self._first and chat.keeps_history:
            # The usual case: the conversation goes on, and only what is new is fed.
            _, reply = self._said[-1]
            new = self._continuation(reply, observation)
            begun = len(self._current.prefix) + len(self._current.ids)
            return _Next(self._current, new, first, begun + len(new))
        shown = self._said[first:]
        if chat.keeps_history or not shown:
            # A segment of its own, of the turns that are shown, with the ids that were sampled.
            texts = [*(text for text, _ in shown), observation]
            prefix, rest = chat.opening(self.system_prompt, texts[0])
            ids = list(rest)
            for (_, reply), text in zip(shown, texts[1:], strict=True):
                ids += [*reply, *self._continuation(reply, text)]
        else:
            # The template rewrites history, so the whole conversation is rendered anew.
            before = opening(self.system_prompt)
            later = self.conversation[len(before) + 2 * first :]
            whole = chat.prompt([*before, *later, user(observation)])
            prefix = self.segments[0].prefix
            if tuple(whole[: len(prefix)]) != prefix:
                prefix = ()
            ids = whole[len(prefix) :]
        return _Next(Segment(prefix), ids, first, len(prefix) + len(ids))

    def _continuation(self, reply: Sequence[int], observation: str) -> Sequence[int]:
        """Ids between a reply and the next one; they begin with the template's own end where the reply has another."""
        chat = self.policy.chat
        return chat.continuation(observation, ended=reply[-1] == chat.end_ids[0])


def replayed(policy: Policy, conversation: Sequence[ChatMessage]) -> Episode:
    """An episode with all messages of a conversation; a reply of weight 0 is not trained on."""
    turns = list(conversation)
    system_prompt = turns.pop(0)["content"] if turns and turns[0]["role"] == "system" else ""
    episode = Episode(policy, system_prompt)
    for message in turns:
        if message["role"] == "user":
            episode.observe(message["content"], _actions(message))
        elif message.get("weight") == 0:
            episode.add_untrained_reply(message["content"])
        else:
            ids = list(policy.chat.reply_ids(message["content"]))
            episode.reply(Reply(ids=ids, logprobs=[0.0] * len(ids), ended=True))
    return episode


def prompt_after(policy: Policy, conversation: Sequence[ChatMessage]) -> Opening:
    """All ids before the reply to a conversation's last message, which is a user's."""
    *before, last = conversation
    return replayed(policy, before).prompt_for(last["content"], _actions(last))


def _actions(message: ChatMessage) -> tuple[str, ...] | None:
    actions = message.get("actions")
    return None if actions is None else tuple(actions)
