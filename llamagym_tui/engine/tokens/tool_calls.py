"""Which functions a reply of a model calls: by the parser that belongs to its chat template, else by its text."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from llamagym_tui.engine.tokens.training_template import unbound
from llamagym_tui.game.answer import answer
from llamagym_tui.game.tools import functions_called


def call_reader(tokenizer: Any) -> Callable[[str], list[str]]:
    """What finds the names of the functions that are called in a reply, special tokens included.

    The parser is the tokenizer's own, or TRL's for a template that it knows; what it cannot read, and what models write
    for which there is none, is read by `functions_called`, outside thoughts.
    """
    schema = getattr(tokenizer, "response_template", None) or _known_schema(tokenizer.chat_template)

    def called(reply: str) -> list[str]:
        if schema is not None:
            try:
                calls = tokenizer.parse_response(reply, schema, prefix="").get("tool_calls") or []
                return [call["function"]["name"] for call in calls]
            except Exception:
                pass  # a call that is not well formed
        return functions_called(answer(reply))

    return called


def _known_schema(template: Any) -> Any:
    """TRL's description of the replies of models with a template; None: it does not know the template."""
    if not isinstance(template, str):
        return None
    from trl.chat_template_utils import (
        add_response_schema,  # it takes seconds, and few agents offer tools
    )

    try:
        known: Any = add_response_schema(SimpleNamespace(chat_template=unbound(template)))
    except (ValueError, TypeError):
        return None
    return known.response_template
