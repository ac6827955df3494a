"""Tries out a chat template before this process renders it: one that never ends could not be interrupted here.

A template is a program from outside. A process of its own renders conversations of a few turns under limits of time,
memory and length; it is killed at the first, and what it prints is not read. Raising an error is a template's right.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from itertools import product
from typing import Any

RENDER_S = 2
"""Processor seconds for all renderings."""
START_S = 60
"""Seconds for the process with its imports."""
MOST_CHARACTERS = 1_000_000
"""Characters of a rendered conversation."""
MEMORY = 4 * 2**30
"""Bytes of addresses of the process, most of which libraries reserve and do not use."""
TOOL = {
    "type": "function",
    "function": {
        "name": "a",
        "description": "a",
        "parameters": {"type": "object", "properties": {}},
    },
}
FAULTS = {3: "its text is too long", 4: "it takes too much memory", 5: "it calls itself endlessly"}
"""What is wrong with a template, by the exit code of the process that rendered it."""


def template_fault(tokenizer: Any) -> str | None:
    """Why a tokenizer's chat template is not to be rendered; None: it ends."""
    templates = tokenizer.chat_template
    own = (
        files("llamagym_tui.bundled_model")
        .joinpath("chat_template.jinja")
        .read_text(encoding="utf-8")
    )
    if not templates or templates == own:
        return None
    texts = list(templates.values()) if isinstance(templates, Mapping) else [templates]
    special = {name: str(text) for name, text in tokenizer.special_tokens_map.items()}
    return _tried(json.dumps([texts, special]))


@functools.lru_cache(maxsize=32)
def _tried(request: str) -> str | None:
    """The fault that shows when a process of its own renders what is requested, in JSON; None: it shows none."""
    # PYTHONPATH has all that this process imports from; with -P the working directory does not come before it.
    command = [sys.executable, "-P", "-m", __name__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, input=request.encode(), env=environment, capture_output=True, timeout=START_S
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode < 0:  # killed by a signal, when its processor seconds were up
        return "it does not end"
    return FAULTS.get(done.returncode)


def _render(templates: list[str], special: dict[str, str]) -> int:
    """Render what `ChatTokenizer` does, and longer, where the system can under limits; an exit code."""
    from transformers.utils.chat_template_utils import render_jinja_template

    if sys.platform != "win32":
        import resource
        import signal

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.setitimer(signal.ITIMER_PROF, RENDER_S)  # it kills, whatever is computed
    turns = [{"role": role, "content": "one two"} for role in ("user", "assistant") * 4]
    chats = (
        [{"role": "system", "content": "a"}, *turns[:1]],
        [{"role": "system", "content": "a"}, *turns[:7]],
        turns[:1],
        turns[:2],
        turns[:7],
        turns,
    )
    for template, chat, prompt, tools in product(templates, chats, (True, False), (None, [TOOL])):
        try:
            found, _ = render_jinja_template(
                [chat], tools, None, template, False, False, prompt, **special
            )
        except MemoryError:
            return 4
        except RecursionError:
            return 5
        except Exception:
            continue
        if len(found[0]) > MOST_CHARACTERS:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(_render(*json.loads(sys.stdin.read())))
