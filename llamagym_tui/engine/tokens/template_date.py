"""Fixes the date that a chat template writes to that of a run's first day.

Templates like Llama 3.2's ask for the date whenever they render. A macro of the same name, with the first date, is put
before the template and saved with the tokenizer.
"""

import re
from datetime import datetime

CLOCK = "strftime_now"
"""A template's function for the date, in transformers and llama.cpp."""
_FIXED = re.compile(rf"\{{%- macro {CLOCK}\(format\) %\}}.*?\{{%- endmacro %\}}")
_ARGUMENTS = re.compile(r"(?:\{%- if (\w+) is not defined %\}\{%- set \1 = .*?%\}\{%- endif %\})*")
"""Arguments that `bind_template_arguments` has written before a template."""
_DIRECTIVE = re.compile(r"(?<!\{)%-?[A-Za-z]")


def with_fixed_date(template: str, now: datetime) -> str:
    """A template that writes one date for ever; as it is, where it asks for none or has one already."""
    if CLOCK not in template or _FIXED.search(template):
        return template
    parts = "".join(
        f".replace({directive!r}, {now.strftime(directive)!r})"
        for directive in sorted(set(_DIRECTIVE.findall(template)))
    )
    macro = f"{{%- macro {CLOCK}(format) %}}{{{{ format{parts} }}}}{{%- endmacro %}}"
    return _bound(template, macro)


def with_date_of(template: str, saved: str) -> str:
    """A template that writes the date of a saved one; as it is, where that has none."""
    found = _FIXED.search(saved)
    if found is None or CLOCK not in template or _FIXED.search(template):
        return template
    return _bound(template, found[0])


def _bound(template: str, macro: str) -> str:
    """A template with a macro before it, behind the arguments that are bound there."""
    found = _ARGUMENTS.match(template)
    end = found.end() if found else 0
    return template[:end] + macro + template[end:]
