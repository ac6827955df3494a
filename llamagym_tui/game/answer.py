"""The answer in a reply: what stands outside its thoughts, and in signs that a reader of ASCII knows.

Models write their thoughts in tags of many makes, and the tag that begins one may stand in the prompt already. They
write quotes, colons and digits as their languages do.
"""

import re
import unicodedata

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
"""What is written in place of a sign; None: it is invisible, and left out."""


def answer(reply: str) -> str:
    """What a reply says after its last thought or, if that is nothing, before it; empty if it ends within a thought."""
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


def open_thought(reply: str) -> str:
    """The tag with which the thought began in which a reply ends; empty: it ends in none."""
    tag = ""
    for found in THOUGHT_TAG.finditer(reply):
        tag = (tag or found[0]) if found["begin"] else ""
    return tag


def plain(text: str) -> str:
    """A text with ASCII's quotes, colons, digits and letters in place of their typographic and other relatives."""
    if text.isascii():
        return text
    return re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text.translate(_SIGNS))
