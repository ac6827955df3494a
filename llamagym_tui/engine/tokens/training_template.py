"""TRL's chat templates for training, which keep earlier turns as they are where a model's own rewrites them.

TRL ships the templates of known models, each as the model has it and as ``NAME_training.jinja``; which one a model has
is told by its text alone. The files are read without importing TRL, and nothing is rendered here.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from llamagym_tui.user_files import file_text

ENDING = "_training"
_BOUND = re.compile(
    r"(?:\{%- if (\w+) is not defined %\}\{%- set \1 = .*?%\}\{%- endif %\})*"
    r"(?:\{%- macro strftime_now\(format\) %\}.*?\{%- endmacro %\})?"
)
"""What `bind_template_arguments` and `with_fixed_date` have written before a template."""


class TrainingTemplate(NamedTuple):
    name: str
    """Of TRL's file, without its suffix: ``qwen3_training``."""
    text: str


def training_template(own: str) -> TrainingTemplate | None:
    """TRL's variant for training of a model's own template, with the arguments that are bound in that; None: it has
    none, or there is no TRL."""
    text = unbound(own)
    before = own.removesuffix(text)
    found = find_spec("trl")
    for package in (found.submodule_search_locations or ()) if found else ():
        for variant in sorted(Path(package, "chat_templates").glob(f"*{ENDING}.jinja")):
            original = variant.with_name(variant.name.replace(ENDING, ""))
            if original.is_file() and file_text(original).strip() == text.strip():
                return TrainingTemplate(variant.stem, before + file_text(variant))
    return None


def unbound(template: str) -> str:
    """A template without the arguments and the date that were bound in it."""
    found = _BOUND.match(template)
    return template[found.end() :] if found else template
