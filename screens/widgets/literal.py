"""Makes text from a model, an environment or a user's file safe to draw.

Textual passes control characters on to the terminal and reads square brackets as markup. `literal` shows control
characters as visible ones; `literal_content` also keeps brackets as they are. What is saved is the raw text.
"""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.style import Style

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


C1, BIDI = range(0x80, 0xA0), (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
# A lone surrogate cannot be encoded: writing it to the terminal would end the app.
LINE_ENDS, SURROGATES = (0x2028, 0x2029), range(0xD800, 0xE000)
_TABLE: Final[dict[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys((*C1, *BIDI, *LINE_ENDS, *SURROGATES), REPLACEMENT),
}
"""What each unsafe code point is shown as."""


def literal(text: str) -> str:
    """The text with everything that could control a terminal replaced by a visible character.

    Kept: ``\\n`` and ``\\t``. Replaced: C0, DEL, C1, bidirectional overrides, line separators, surrogates.
    """
    return text.replace("\r\n", "\n").translate(_TABLE)


def pasted(text: str) -> str:
    """The literal text of a paste, in which some terminals end lines with carriage returns."""
    return literal("\n".join(text.replace("\r\n", "\n").split("\r")))


def one_line(text: str) -> str:
    """The literal text on one line."""
    return literal(" ".join(text.split()))


def literal_content(text: str, style: Style | str = "") -> Content:
    """The literal text as content, without markup."""
    return Content.styled(literal(text), style) if style else Content(literal(text))
