"""Arguments of a chat template, written into the template itself.

So every rendering has them, and so has the tokenizer that is saved with a trained model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def bind_template_arguments(tokenizer: Any, arguments: Mapping[str, Any]) -> None:
    """Give a tokenizer's chat template defaults for its arguments; without a template nothing happens.

    Args:
        tokenizer: changed in place.
        arguments: booleans, numbers and strings by name; a rendering may pass others.
    """
    defaults = "".join(
        f"{{%- if {name} is not defined %}}{{%- set {name} = {value!r} %}}{{%- endif %}}"
        for name, value in arguments.items()
    )
    template = tokenizer.chat_template
    if isinstance(template, str) and defaults and not template.startswith(defaults):
        tokenizer.chat_template = defaults + template
