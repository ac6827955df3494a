"""From conversations to token ids, one turn at a time: tokens in, tokens out.

A reply is never decoded and encoded again: encoding may cut the same text into other tokens, which the policy did not
sample. The next prompt is the ids so far, then the chat template's end of a reply, then the next user message. Some
templates rewrite history, which allows no such prompts; rendering tells which.
Messages are text: a control token that is spelled out in one is broken by a space, so that it stays text.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import Any, NamedTuple

from llamagym_tui.errors import ModelLoadError, described
from llamagym_tui.game.actions import THOUGHT_TAG
from llamagym_tui.game.chat import ChatMessage, Conversation, assistant, opening, user

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:\n{{ m['content'] }}"
    "{{ eos_token if m['role'] == 'assistant' else '' }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
"""Used for models without a chat template, behind the tokenizer's own beginning of a text; a reply begins on a line of
its own, so no space is torn off it."""

_EMPTY_THOUGHT = re.compile(r"\A\s*<think>\s*</think>")
"""Some templates write this before a reply without a thought."""
MARK = "zqx"
"""A message that is found again in the rendered text, and that no template contains."""
REMEMBERED = 20_000
"""Openings, continuations and texts of replies that are cached, each."""


class Opening(NamedTuple):
    """The ids of an episode's first prompt, split where episodes begin to differ."""

    prefix: tuple[int, ...]
    """Ids that every episode under the same system prompt begins with."""
    rest: tuple[int, ...]
    """The first user message and the generation prompt."""


def _model_ends(tokenizer: Any, sampling: Any) -> tuple[int, ...]:
    """Ids that end a reply by a model's generation_config.json.

    Without that file transformers repeats the model's configuration, whose default may fit no tokenizer. Then only
    special tokens count.
    """
    ends = getattr(sampling, "eos_token_id", None)
    if ends is None:
        return ()
    known = range(len(tokenizer))
    if sampling._from_model_config:
        known = tokenizer.all_special_ids
    return tuple(end for end in ([ends] if isinstance(ends, int) else ends) if end in known)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of ids with which both begin."""
    return sum(takewhile(bool, map(eq, one, other)))


class ChatTokenizer:
    def __init__(self, tokenizer: Any, sampling: Any = None) -> None:
        """Learn the template's ways by rendering; a tokenizer without one gets `PLAIN_TEMPLATE`.

        Args:
            sampling: the model's `GenerationConfig`, which may name ids that end a reply, next to those that tokenizer
                and template have.
        Raises:
            ModelLoadError: the template does not render a conversation, or changes its messages.
        """
        self.tokenizer = tokenizer
        self.model_ends = _model_ends(tokenizer, sampling)
        """Ids that end a reply by the model's generation_config.json."""
        # Some tokenizers mark a token as special without naming it among their special tokens.
        self._special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special |= set(tokenizer.all_special_ids)
        self._thought_ids = {
            i for i in self._special if THOUGHT_TAG.fullmatch(tokenizer.convert_ids_to_tokens(i))
        }
        self._spelling = re.compile(r"(?!)")
        """Finds control tokens in a text. While the template is looked at, there are none."""
        if not tokenizer.chat_template:
            begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
            tokenizer.chat_template = f"{'{{ bos_token }}' if begins else ''}{PLAIN_TEMPLATE}"
        try:
            self._look()
        except ModelLoadError:
            raise
        except Exception as error:
            raise ModelLoadError(
                f"The model's chat template cannot be used ({described(error)}): take another model or template."
            ) from error
        # Environments repeat themselves, and rendering takes longer than a step of most of them.
        self.opening = lru_cache(REMEMBERED)(self._opening)
        self.continuation = lru_cache(REMEMBERED)(self._continuation)
        self._text = lru_cache(REMEMBERED)(self._decoded)

    def _look(self) -> None:
        """Learn the template's ways by rendering."""
        self.takes_system = self._takes_system()
        """True if the template has system messages. Otherwise the prompt begins the first user message."""
        self.end_ids = self._end_ids()
        """Ids that end a reply: the template's own end, if it has one, then others. Empty: nothing ends one."""
        self.opens = self._opened_thought()
        """The tag of a thought with which the generation prompt ends; empty: it ends with none."""
        self.keeps_history = self._keeps_history()
        """True if a conversation may go on behind the sampled ids."""
        spelled = self.tokenizer.convert_ids_to_tokens(sorted(self._control_ids()))
        texts = [text for text in spelled if len(text) > 1]
        longest_first = sorted(map(re.escape, texts), key=len, reverse=True)
        self._spelling = re.compile("|".join(longest_first) or r"(?!)")

    def _control_ids(self) -> set[int]:
        """Special tokens, and added ones with which the template writes a turn or a reply ends."""
        turns = [*opening(MARK), user(MARK), assistant(MARK), user(MARK)]
        written = {*self.end_ids, *self.ids(self.render(turns, prompt=True))}
        controls = set(self._special)
        for token, added in self.tokenizer.added_tokens_decoder.items():
            is_text = not added.content.strip() or THOUGHT_TAG.fullmatch(added.content)
            if token in written and not is_text:
                controls.add(token)
        return controls

    def _literal(self, text: str) -> str:
        """A text in which no control token is spelled out."""
        return self._spelling.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _opening(self, system_prompt: str, observation: str) -> Opening:
        """The ids of an episode's first prompt; its prefix is that of an opening with any other observation, too."""
        text = self.render([*opening(system_prompt), user(MARK)], prompt=True)
        prefix = self.ids(text[: text.rindex(MARK)])
        ids = self.ids(self.render([*opening(system_prompt), user(observation)], prompt=True))
        # A token may span the prefix's end and the observation's beginning; then the prefix ends before it. The last
        # id is never in it, so that there is something to compute after every prefix.
        length = shared(prefix, ids[:-1])
        return Opening(tuple(ids[:length]), tuple(ids[length:]))

    def _continuation(self, observation: str, *, ended: bool) -> tuple[int, ...]:
        """The ids after a reply: the template's end, the next user message, the generation prompt.

        If `ended`, the reply has the template's end already, and it is left out.
        """
        ids = self._ids_after(MARK, self._text_after_reply(observation))
        return tuple(ids[self._through_end(ids) :] if ended else ids)

    def _text_after_reply(self, observation: str) -> str:
        text = self.render([user(MARK), assistant(MARK), user(observation)], prompt=True)
        return text.split(MARK, 2)[-1]  # a template may leave earlier turns out

    def prompt(self, conversation: Conversation) -> list[int]:
        """Ids of a whole conversation with the generation prompt: for templates that rewrite history."""
        return self.ids(self.render(conversation, prompt=True))

    def reply_ids(self, reply: str) -> tuple[int, ...]:
        """Ids of a reply as the model would sample it after the generation prompt, its end included."""
        # The template's own rendering behind the prompt, if that is the reply and space around it (Llama 2 puts a space
        # before it). A template that adds more (an empty thought) gets the reply's text alone.
        prompt = self.render([user(MARK)], prompt=True)
        whole = self.render([user(MARK), assistant(reply)], prompt=False)
        text = whole.removeprefix(prompt)
        own = self._literal(reply).strip()
        if len(text) == len(whole) or not text.lstrip().startswith(own):
            text = self._literal(reply)
        ids = self._ids_after(prompt, text)
        ends = [at for at, token in enumerate(ids) if token in self.end_ids]
        if ends:
            # A template may end the last reply with another token than an earlier one, which the next prompt has.
            return (*ids[: ends[0]], self.end_ids[0])
        if self.end_ids:
            # Or it may not end the last reply at all, and write other space behind it.
            text = text.rstrip()
        return (*self._ids_after(prompt, text), *self.end_ids[:1])

    def text(self, ids: Sequence[int]) -> str:
        """Ids as text without control tokens, but for those that begin or end a thought."""
        return self._text(tuple(ids))

    def reply(self, ids: Sequence[int]) -> str:
        """The text of a reply. If it was cut off in a thought that the prompt began, it begins with that tag, so that
        nobody reads it as an answer."""
        text = self.text(ids)
        is_cut = bool(self.opens) and bool(ids) and ids[-1] not in self.end_ids
        return self.opens + text if is_cut else text

    def _decoded(self, ids: Sequence[int]) -> str:
        if ids and ids[-1] in self.end_ids:  # which need not be special
            ids = ids[:-1]
        if self._thought_ids.isdisjoint(ids):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        shown = [i for i in ids if i not in self._special or i in self._thought_ids]
        return str(self.tokenizer.decode(shown, skip_special_tokens=False))

    def ids(self, text: str) -> list[int]:
        """Ids of rendered text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _ids_after(self, before: str, text: str) -> list[int]:
        """Ids of rendered text after other text; ids of the text alone where a token would span both."""
        already = self.ids(before)
        both = self.ids(before + text)
        if both[: len(already)] != already:
            return self.ids(text)
        return both[len(already) :]

    def _through_end(self, ids: Sequence[int]) -> int:
        """Length of the template's end of a reply at the start of `ids`: space before it, and its token; 0: none."""
        for at, token in enumerate(ids):
            if token in self.end_ids[:1]:
                return at + 1
            if self.tokenizer.decode([token]).strip():
                break
        return 0

    def render(self, conversation: Sequence[ChatMessage], *, prompt: bool) -> str:
        """The template's text of a conversation, `prompt` with the generation prompt."""
        if not self.takes_system and conversation and conversation[0]["role"] == "system":
            first, second, *rest = conversation
            conversation = [user(f"{first['content']}\n\n{second['content']}"), *rest]
        literal = [
            {**message, "content": self._literal(message["content"])} for message in conversation
        ]
        return str(
            self.tokenizer.apply_chat_template(
                literal, tokenize=False, add_generation_prompt=prompt
            )
        )

    def _takes_system(self) -> bool:
        self.takes_system = True  # so that `render` tries it
        try:
            return "sysmark" in self.render([*opening("sysmark"), user(MARK)], prompt=True)
        except Exception:
            return False

    def _end_ids(self) -> tuple[int, ...]:
        """Ids that end a reply: the template's own end, those of the tokenizer and the model, and control tokens with
        which the next turn begins."""
        text = self.render([user(MARK), assistant(MARK), user(MARK)], prompt=True)
        # A template may hide an earlier reply, but not the last one.
        last = self.render([user(MARK), assistant(MARK)], prompt=False)
        if min(text.count(MARK), last.count(MARK)) < 2:
            raise ModelLoadError(
                "The model's chat template changes what messages say, or leaves some out, so that no reply is found "
                "again in a conversation: let it write the content of each message as it is, or take another model."
            )
        after = self.ids(text.split(MARK, 3)[2])
        known = {*self._special, *self.tokenizer.added_tokens_decoder}
        controls = [token for token in after if token in known]
        visible = [token for token in after if self.tokenizer.decode([token]).strip()]
        ends = [token for token in visible[:1] if token in controls]
        if self.tokenizer.eos_token_id is not None:
            ends.append(self.tokenizer.eos_token_id)
        return tuple(dict.fromkeys((*ends, *self.model_ends, *controls)))

    def _opened_thought(self) -> str:
        after = self.render([user(MARK)], prompt=True).rpartition(MARK)[2]
        tags = list(THOUGHT_TAG.finditer(after))
        is_open = tags and tags[-1]["begin"] and not after[tags[-1].end() :].strip()
        return after[tags[-1].start() :] if is_open else ""

    def _keeps_history(self) -> bool:
        """True if each prompt is the last one, its reply and `continuation`, with and without a system prompt.

        Space and an empty thought before a reply are left to the model.
        """
        return self._keeps([]) and self._keeps(opening("sysmark"))

    def _keeps(self, before: Conversation) -> bool:
        turns = [*before, user("one")]
        prompt = self.render(turns, prompt=True)
        for reply, observation in (("<think>\nwhy\n</think>\n\ntwo", "three"), ("four", "five")):
            turns += [assistant(reply), user(observation)]
            later = self.render(turns, prompt=True)
            after = _EMPTY_THOUGHT.sub("", later.removeprefix(prompt))
            wanted = reply + self._text_after_reply(observation)
            if not later.startswith(prompt) or after.lstrip() != wanted:
                return False
            prompt = later
        return True
