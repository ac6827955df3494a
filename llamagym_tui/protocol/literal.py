"""Text that steers no terminal: what came from a model, an environment, a file or an argument, as it can be shown.

`literal` and `one_line` show control characters as visible ones; the command line prints by `echo` and `echo_json`.
"""

import json
import re
import sys
from typing import Any, Final, TextIO

import msgspec

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
LONGEST_LINE = 10_000
"""Characters of what has to be one line that are shown at most."""
UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but line end and tab, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators and bidirectional controls
    # Without a width of their own, or with one that terminals disagree about; joiners, which scripts need, stay.
    "\xad\u115f\u1160\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    "\ud800-\udfff]"  # surrogates: a lone one cannot be encoded
)
_LINE_ENDS: Final = str.maketrans(
    "\n\t", "\N{SYMBOL FOR NEWLINE}\N{SYMBOL FOR HORIZONTAL TABULATION}"
)


def literal(text: str) -> str:
    """The text with everything that could control a terminal replaced by a visible character.

    Kept: ``\\n`` and ``\\t``. Replaced: C0, DEL, C1, bidirectional controls, invisible characters, line separators,
    surrogates.
    """
    return UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """The literal text on one line of at most `longest` characters, with white space as single spaces."""
    return literal(_bounded(" ".join(text[: 2 * LONGEST_LINE].split()), longest))


def echo(text: str, *, to: TextIO | None = None, lines: bool = False) -> None:
    """Print a text, literal.

    Args:
        text: of any origin.
        to: a stream, by default stdout.
        lines: whether its line ends are line ends, as in a traceback; else they are shown.
    """
    for line in text.split("\n") if lines else [text]:
        _write(literal(_bounded(line)).translate(_LINE_ENDS), to)


def echo_json(figures: dict[str, Any]) -> None:
    """Print a line of JSON on stdout, in ASCII.

    What could control a terminal is escaped and reads back as it was; a number that is not finite is null.
    """
    built_in = msgspec.to_builtins(figures)
    plain = json.loads(json.dumps(built_in), parse_constant=lambda _: None)
    _write(json.dumps(plain).replace("\x7f", r"\u007f"), None)


def _visible(unsafe: re.Match[str]) -> str:
    code = ord(unsafe[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the symbol for that control character
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    return REPLACEMENT


def _bounded(line: str, longest: int = LONGEST_LINE) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _write(line: str, to: TextIO | None) -> None:
    stream = to or sys.stdout
    encoding = stream.encoding or "utf-8"
    # In an older encoding the terminal gets a question mark, and nothing raises.
    stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()
