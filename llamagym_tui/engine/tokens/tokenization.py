"""From conversations to token ids, one turn at a time: tokens in, tokens out.

A reply is never decoded and encoded again: encoding may cut the same text into other tokens, which the policy did not
sample. The next prompt is the ids so far, then what the chat template puts after a reply, then the next user message.
Whether a template allows that (some rewrite history) is tested by rendering.
Messages are text: a special token that is spelled out in one stays literal (`literal_text`).
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import Any, NamedTuple

from llamagym_tui.engine.tokens.literal_text import LiteralText
from llamagym_tui.engine.tokens.template_trial import template_fault
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.game.chat import ChatMessage, Conversation, assistant, opening, user

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:\n{{ m['content'] }}"
    "{{ eos_token if m['role'] == 'assistant' else '' }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""Used for models without a chat template; a reply begins on a line of its own, so no space is torn off it."""

_MARK = "zqx"
"""A message that is found again in the rendered text, and that no template contains."""
REMEMBERED = 20_000
"""Openings, continuations and texts of replies that are kept, so many of each."""


class Opening(NamedTuple):
    """The ids of an episode's first prompt, split where episodes begin to differ."""

    prefix: tuple[int, ...]
    """Ids that every episode under the same system prompt begins with."""
    rest: tuple[int, ...]
    """The first user message and the generation prompt."""


class ChatTokenizer:
    def __init__(self, tokenizer: Any) -> None:
        """Find out what the template does by rendering; a tokenizer without one gets `PLAIN_TEMPLATE`.

        Raises:
            ModelLoadError: the template does not end, or does not render a conversation.
        """
        fault = template_fault(tokenizer)
        if fault:
            raise _unusable(fault)
        self.tokenizer = tokenizer
        self._literal = LiteralText(tokenizer)
        if not tokenizer.chat_template:
            tokenizer.chat_template = PLAIN_TEMPLATE
        try:
            self.takes_system = self._takes_system()
            """Whether the template has system messages; else the prompt begins the first user message."""
            self.end_ids = self._end_ids()
            self.keeps_history = self._keeps_history()
        except Exception as error:
            raise _unusable(" ".join(str(error).split())[:200] or type(error).__name__) from error
        # Environments repeat themselves, and rendering takes longer than a step of most of them.
        self.opening = lru_cache(REMEMBERED)(self._opening)
        self.continuation = lru_cache(REMEMBERED)(self._continuation)
        self._text = lru_cache(REMEMBERED)(
            lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))
        )

    def _opening(self, system_prompt: str, observation: str) -> Opening:
        """The ids of an episode's first prompt; its prefix is what an opening with any other observation has, too."""
        text = self._render([*opening(system_prompt), user(_MARK)], prompt=True)
        prefix = self._ids(text[: text.rindex(_MARK)])
        ids = self._ids(self._render([*opening(system_prompt), user(observation)], prompt=True))
        # A token may span the prefix's end and the observation's beginning; then the prefix ends before it. The last
        # id is never in it, so that there is something to compute after every prefix.
        shared = sum(takewhile(bool, map(eq, prefix, ids[:-1])))
        return Opening(tuple(ids[:shared]), tuple(ids[shared:]))

    def _continuation(self, observation: str, *, ended: bool) -> tuple[int, ...]:
        """What follows a reply: the template's end of it, the next user message, the generation prompt.

        If `ended`, the reply's last id was the template's end itself, which is left out then.
        """
        text = self._render([user(_MARK), assistant(_MARK), user(observation)], prompt=True)
        ids = self._ids_after(_MARK, text.split(_MARK, 2)[2])
        return tuple(ids[self._through_end(ids) :] if ended else ids)

    def prompt(self, conversation: Conversation) -> list[int]:
        """Ids of a whole conversation with the generation prompt: for templates that rewrite history."""
        return self._ids(self._render(conversation, prompt=True))

    def reply_ids(self, reply: str) -> tuple[int, ...]:
        """Ids of a reply as the model would sample it after the generation prompt, its end included."""
        # What the template's own rendering adds to the prompt, if that is the reply and space around it (Llama 2 puts a
        # space before it). A template that adds more (an empty thought) gets the reply's text alone.
        prompt = self._render([user(_MARK)], prompt=True)
        whole = self._render([user(_MARK), assistant(reply)], prompt=False)
        text = whole.removeprefix(prompt)
        own = self._literal.hide(reply).strip()
        if len(text) == len(whole) or not text.lstrip().startswith(own):
            text = self._literal.hide(reply)
        ids = self._ids_after(prompt, text)
        ends = [at for at, token in enumerate(ids) if token in self.end_ids]
        return tuple(ids[: ends[0] + 1]) if ends else (*ids, self.end_ids[0])

    def text(self, ids: Sequence[int]) -> str:
        return self._text(tuple(ids))

    def _ids(self, text: str) -> list[int]:
        """Ids of rendered text; only what the template wrote becomes special tokens."""
        if self._literal.hides(text):
            return self._literal.ids(text)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _ids_after(self, before: str, text: str) -> list[int]:
        """Ids of rendered text after other text; ids of the text alone where a token would span both."""
        already = self._ids(before)
        both = self._ids(before + text)
        if both[: len(already)] != already:
            return self._ids(text)
        return both[len(already) :]

    def _through_end(self, ids: Sequence[int]) -> int:
        """Length of the template's end of a reply at the start of `ids`: space before it, and its token; 0: none."""
        for at, token in enumerate(ids):
            if token in self.end_ids:
                return at + 1
            if self.tokenizer.decode([token]).strip():
                break
        return 0

    def _render(self, conversation: Sequence[ChatMessage], *, prompt: bool) -> str:
        if not self.takes_system and conversation and conversation[0]["role"] == "system":
            first, second, *rest = conversation
            conversation = [user(f"{first['content']}\n\n{second['content']}"), *rest]
        literal = [
            {**message, "content": self._literal.hide(message["content"])}
            for message in conversation
        ]
        return self.tokenizer.apply_chat_template(
            literal, tokenize=False, add_generation_prompt=prompt
        )

    def _takes_system(self) -> bool:
        self.takes_system = True  # so that `_render` tries it
        try:
            return "sysmark" in self._render([*opening("sysmark"), user(_MARK)], prompt=True)
        except Exception:
            return False

    def _end_ids(self) -> tuple[int, ...]:
        """Ids that end a reply: the template's own end, and the tokenizer's end of sequence."""
        text = self._render([user(_MARK), assistant(_MARK), user(_MARK)], prompt=True)
        after = self._ids(text.split(_MARK, 2)[2])
        # Some tokenizers mark the template's end as special without naming it among their special tokens.
        added = self.tokenizer.added_tokens_decoder
        special = {
            *self.tokenizer.all_special_ids,
            *(i for i, token in added.items() if token.special),
        }
        ends = [i for i in after[:1] if i in special]
        if self.tokenizer.eos_token_id is not None and self.tokenizer.eos_token_id not in ends:
            ends.append(self.tokenizer.eos_token_id)
        return tuple(ends)

    def _keeps_history(self) -> bool:
        """Whether each prompt begins with the last one and its reply; space before a reply is left to the model."""
        turns = [user("one"), assistant("<think>\nwhy\n</think>\n\ntwo"), user("three")]
        first = self._render(turns[:1], prompt=True)
        second = self._render(turns, prompt=True)
        third = self._render([*turns, assistant("four"), user("five")], prompt=True)
        return _continues(first, turns[1]["content"], second) and _continues(second, "four", third)


def _unusable(fault: str) -> ModelLoadError:
    return ModelLoadError(
        f"The model's chat template cannot be used ({fault}): take another model or template."
    )


def _continues(prompt: str, reply: str, later: str) -> bool:
    return later.startswith(prompt) and later.removeprefix(prompt).lstrip().startswith(reply)
