"""Reads the action that a reply names: from JSON first, then from ``Action: …``, then from a keyword.

Each reading also says in which of these ways the action was found. Thoughts are skipped: models write them in tags of
many makes, and the tag that begins one may stand in the prompt already. Quotes, colons and digits of other alphabets
count as ASCII's.
"""

import json
import operator
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

How = Literal["json", "pattern", "keyword", "custom", "human", "failed"]
"""The way an action was found; ``custom``: by an agent's own code, ``human``: a person chose it."""

MAX_REPLY_CHARS = 20_000
"""Characters at a reply's end that are read: the time to search broken JSON grows with the square of its length."""

# A number must not go on: 1.5, 1,000, 1/2, 50% and 1st are no actions, but the "1." that ends a sentence is one.
_NUMBER = r"-?[0-9]{1,9}(?:\.0+)?(?![.,:/-]?[0-9]|\s?%)"
_MARKS = r"""(?:[\s"'*_({<$#]|`(?:``\w+\n)?|\\boxed|<[^<>]{1,40}>)*"""
"""Quotes, brackets, Markdown and tags before a value."""
_CLOSING = r"""[\s"'*_`)}>$]*+"""
_SAYS_ACTION = r"""
    (?: (?<!\w)_*action_*(?!\w) ["'*`]*
        (?: \s*(?:is\b:?|=|:|->|=>|→)                   # Action: 1     **Action:** 1     action="1"     "action": 1
          | (?:\s+[\w-]+=["'][^"']*["'])*\s*>           # <action>1     <parameter name="action" string="false">1
          | \s+(?:name|value|id|index)=                 # <action name="hit"/>
          | </arg_key>\s*<arg_value>                    # <arg_key>action</arg_key> <arg_value>1</arg_value>
        )
      | (?m:^)[ \t]*[#*_]+[ \t]*action[*_]*[ \t]*\n      # ## Action, as a heading of the next line
    )"""

_THOUGHT = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|scratch_?pad|analysis)"
THOUGHT_TAG = re.compile(
    rf"(?P<begin>[<\[◁]\|?(?:start_|begin_of_)?{_THOUGHT}\|?[>\]▷]|<\|channel>(?:thought)?|<\|channel\|>analysis)"
    rf"|[<\[◁]\|?(?:/|end_|end_of_){_THOUGHT}\|?[>\]▷]|<channel\|>|<\|channel\|>(?:final)?",
    re.IGNORECASE,
)
"""The tag with which a thought begins, or ends: ``<think>``, ``[THINK]``, ``<|channel>thought`` … ``<channel|>``; in
gpt-oss, ``<|channel|>analysis`` and any other channel."""

_SIGNS: dict[int, int | str | None] = {
    **{full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F)},  # ASCII in full width
    **{ord(sign): '"' for sign in "“”„‟«»「」『』"},
    **{ord(sign): "'" for sign in "‘’‚‛‹›"},
    **str.maketrans("∶﹕꞉،٫٬。−\u00a0\u3000", ":::,.,.-  "),
    **dict.fromkeys((0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2060, 0x206A), 0xFEFF)),
}
"""The ASCII for a sign; None leaves it out, as it is invisible."""


def answer(reply: str) -> str:
    """The text after the last thought, or before it if nothing follows; empty if a reply ends within a thought."""
    said = [""]
    is_thinking = False
    at = 0
    for tag in THOUGHT_TAG.finditer(reply):
        if tag["begin"]:
            if not is_thinking:
                said.append(reply[at : tag.start()])
            is_thinking = True
        else:
            if not is_thinking:  # the thought began in the prompt
                said = [""]
            is_thinking = False
        at = tag.end()
    if is_thinking:
        return ""
    said.append(reply[at:])
    return next((part for part in reversed(said) if part.strip()), "")


def plain(text: str) -> str:
    """A text with ASCII's quotes, colons, digits and letters in place of their typographic and other relatives."""
    if text.isascii():
        return text
    return re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text.translate(_SIGNS))


CALLS = ("tool_calls", "function_call", "function", "arguments", "parameters", "args", "input")
"""Where an object of a tool call has its function or its arguments, which may be JSON in a string."""
_JSON = json.JSONDecoder(strict=False)
_BEGIN = re.compile(r"\{|\[\s*\{")
"""Of an object, or of a list of objects."""
_TAG_BEFORE = re.compile(r"<[^<>]{1,40}>\s*\Z")


def json_actions(text: str) -> Iterator[tuple[int, list[Any]]]:
    """The JSON values of a text that give an ``action``: where each begins, and what it gives."""
    end = 0
    while begin := _BEGIN.search(text, end):
        try:
            value, end = _JSON.raw_decode(text, begin.start())
            actions = _actions_of(value)
        except (ValueError, RecursionError):
            end = begin.start() + 1
            continue
        if actions:
            yield begin.start(), actions


def _actions_of(value: Any) -> list[Any]:
    """The actions that an object, a tool call, or a list of them gives."""
    if isinstance(value, list):
        return [action for part in value for action in _actions_of(part)]
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _actions_of(_JSON.raw_decode(value.lstrip())[0])
    if not isinstance(value, dict):
        return []
    given = [item for key, item in value.items() if plain(key).strip().lower() == "action"]
    return given or _actions_of([value[key] for key in CALLS if key in value])


class ActionReading(NamedTuple):
    """An action, and how it was found in the reply."""

    action: Any
    """The action for ``env.step``; ``None`` if the reply names none."""
    how: How

    @property
    def failed(self) -> bool:
        """The reply names no action."""
        return self.how == "failed"


class Parts(NamedTuple):
    """A reply in its parts, one after the other; any of them may be empty."""

    thought: str
    """In tags, through the end of the last one."""
    reason: str
    """The text before the action."""
    action: str
    """From the JSON of the action on; the whole answer, where there is none."""


FAILED = ActionReading(None, "failed")
"""The reading of a reply that names no action."""


def thought_end(reply: str) -> int:
    """Where the thoughts of a reply end, and what it says begins; 0 if there is none."""
    end = 0
    is_thinking = False
    for tag in THOUGHT_TAG.finditer(reply):
        end = tag.end()
        is_thinking = bool(tag["begin"])
    return len(reply) if is_thinking else end


def parted(reply: str) -> Parts:
    """The parts of a reply, which are the reply if they are joined."""
    end = thought_end(reply)
    said = reply[end:]
    at = 0
    for place, _ in json_actions(said):
        before = _TAG_BEFORE.search(said, 0, place)
        at = before.start() if before else place
    return Parts(reply[:end], said[:at], said[at:])


def plain_action(action: Any) -> Any:
    """An action as Python's own whole number, if it is one of any kind: NumPy's, torch's, a truth; else as it is."""
    if getattr(action, "ndim", 0):
        return action  # an array, of one number too, is an action of several decisions
    try:
        return operator.index(action)
    except TypeError:
        return int(action) if type(action).__name__ == "bool" else action


def read_action(reply: str, action_names: Sequence[str]) -> ActionReading:
    """The discrete action that a reply names, and how it was found.

    What the reply says after its thoughts counts; one that ends within a thought names no action. The last JSON object
    with an ``action`` counts, by itself or as the arguments of a tool call, then the last ``Action: …`` or
    ``<action>…``, then a number that is the whole reply, then a keyword if the reply names exactly one action. An
    action is given by its index or by its name, in upper or lower case; booleans, fractions and indices out of range
    are not actions.

    Args:
        reply: the model's text.
        action_names: the names in the order of the indices; there are as many actions as names.
    """
    if not action_names:
        return FAILED
    names = _names(tuple(action_names))
    said = answer(reply)[-MAX_REPLY_CHARS:]
    for text in _forms(said):
        for _, values in reversed(list(json_actions(text))):
            indices = {names.index(value) for value in values} - {None}
            if indices:
                return ActionReading(indices.pop(), "json") if len(indices) == 1 else FAILED
    return names.in_words(_forms(said)[-1])


def spelled(name: str) -> str:
    """A name without what a reading takes no notice of: upper or lower case, typographic signs, more white space."""
    return " ".join(plain(name).split()).casefold()


def json_index(reply: str) -> int | None:
    """The index that the last JSON object with an ``action`` gives; None: there is none, or it is no index."""
    said = answer(reply)[-MAX_REPLY_CHARS:]
    found = [values for text in _forms(said) for _, values in json_actions(text)]
    if not found or len(found[-1]) != 1:
        return None
    value = found[-1][0]
    # In Python a bool is an int, too.
    is_index = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_index else None


def _forms(said: str) -> list[str]:
    """A reply's answer as it is written and, where that differs, with plain signs and without the quotes of a string
    around its JSON."""
    return list(dict.fromkeys((said, plain(said), plain(said).replace('\\"', '"'))))


class _Names:
    """The actions of an agent, which are found in a text by their names and numbers."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._count = len(names)
        self._indices: dict[str, int] = {}
        for index, name in enumerate(names):
            if spelled(name):
                self._indices.setdefault(spelled(name), index)
        # Where names overlap the longest counts: "up-left" is not also "left".
        longest_first = sorted(self._indices, key=len, reverse=True)
        # Between the words of a name there may be other white space than in the name.
        patterns = [r"\s+".join(map(re.escape, name.split())) for name in longest_first]
        name = "|".join(patterns) or r"(?!)"
        value = rf"(?>{name}|{_NUMBER})(?!\w|-\w)"
        is_choice = rf"{_CLOSING}(?:\bor\b|\band\b|/|\|){_MARKS}{value}|{_CLOSING},\s*{_NUMBER}{_CLOSING}\.?$"
        self._said = re.compile(
            rf"{_SAYS_ACTION}(?-x:{_MARKS}({value})(?!{is_choice}))",
            re.IGNORECASE | re.VERBOSE | re.MULTILINE,
        )
        self._whole = re.compile(
            rf"{_MARKS}(?:action\s*)?#?({_NUMBER}){_CLOSING}[.!]?{_MARKS}", re.IGNORECASE
        )
        denial = r"(?:\b(?:not|never|cannot|avoid)|n't)\s+(?:to\s+)?"
        self._keyword = re.compile(
            rf"({denial})?(?<!\w)(?:({name})|action\s+#?({_NUMBER}))(?!\w)", re.IGNORECASE
        )

    def index(self, value: Any) -> int | None:
        """The index of the action that a value names, by name or by number; None: it names none."""
        if isinstance(value, bool):
            return None
        if isinstance(value, str):
            word = spelled(value)
            if word in self._indices:
                return self._indices[word]
            if not re.fullmatch(_NUMBER, word):
                return None
            value = float(word)
        is_index = isinstance(value, int | float) and value in range(self._count)
        return int(value) if is_index else None

    def in_words(self, text: str) -> ActionReading:
        """The action that is said in plain text."""
        said = [self.index(match[1]) for match in self._said.finditer(text)]
        known = [action for action in said if action is not None]
        if known:
            return ActionReading(known[-1], "pattern")
        if whole := self._whole.fullmatch(text):
            action = self.index(whole[1])
            return FAILED if action is None else ActionReading(action, "pattern")
        named = set()
        for match in self._keyword.finditer(text):
            denied, name, number = match.groups()
            if denied:
                return FAILED
            named.add(self.index(name or number))
        named.discard(None)
        return ActionReading(named.pop(), "keyword") if len(named) == 1 else FAILED


_names = lru_cache(256)(_Names)
