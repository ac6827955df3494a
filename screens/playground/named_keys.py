"""Texts that name keys of the playground: the hints of a first start, and lessons.

`{pause}` stands for the key of the binding with the id ``pause``.
"""

from textual.binding import Binding
from textual.keys import format_key

from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.key_bar import KeyOf
from llamagym_tui.setup.lessons import NAMED


def with_keys(text: str, key_of: KeyOf = lambda id, usual: usual) -> str:
    """The text with keys in place of their names.

    Args:
        text: names keys by the ids of the playground's bindings.
        key_of: names the key that a binding has now. Without it: the key that nobody has moved.
    """
    usual: dict[str, str] = {}
    for binding in Binding.make_bindings(PlaygroundScreen.BINDINGS):
        # Of several keys for one action the first is named.
        usual.setdefault(binding.id or "", format_key(binding.key))
    return NAMED.sub(lambda named: key_of(named[1], usual[named[1]]), text)
