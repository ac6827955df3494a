"""Every key of the playground, in the order of the bottom row and of help; `keys.json` has them.

Their actions are methods of `playground.py`, `steer_actions.py` and `watch_actions.py`; those that begin with ``app.``
are the app's. Keys that are not shown in the bottom row are listed by help alone.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from textual.binding import Binding, BindingType

from llamagym_tui.user_files import file_text


class _Keys(Struct):
    groups: dict[str, str]
    keys: list[dict[str, Any]]
    """Arguments of `Binding`."""


_FILE = msgspec.json.decode(file_text(Path(__file__).with_suffix(".json")), type=_Keys)
HELP_GROUPS = _FILE.groups
"""In which help has the keys, by their ids."""
KEYS: list[BindingType] = [Binding(**key) for key in _FILE.keys]
