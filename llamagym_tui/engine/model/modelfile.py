"""A Modelfile for Ollama: the GGUF file, the run's prompt and sampling, and its chat template in Ollama's language."""

from collections.abc import Callable, Sequence

from llamagym_tui.config import GenerationConfig
from llamagym_tui.game.chat import ChatMessage, Conversation, assistant, system, user

Render = Callable[[Conversation], str]
"""A conversation as a chat template writes it, the beginning of the next reply last."""
MARKS = {"system": "zqxs", "user": "zqxu", "assistant": "zqxa"}
"""Messages that are found again in the rendered text, and that no template contains."""
TRIALS: Sequence[Conversation] = (
    [user("one")],
    [system("none"), user("one"), assistant("two"), user("three")],
    [user("one"), assistant("two"), user("three"), assistant("four"), user("five")],
)
"""Conversations that a template in Ollama's language has to write as the model's own."""


def modelfile(
    weights: str, prompt: str, sampling: GenerationConfig, render: Render, ends: Sequence[str]
) -> str:
    """The text of a Modelfile.

    Args:
        weights: name of the GGUF file, which lies beside it.
        prompt: the system prompt. Empty: none.
        render: the model's own chat template.
        ends: texts that end a reply.
    """
    lines = [f"FROM ./{weights}"]
    pieces = pieces_of(render)
    if pieces is None:
        lines.append("# The chat template cannot be said in Ollama's language: give a TEMPLATE.")
    else:
        lines.append(f'TEMPLATE """{_in_go(*pieces)}"""')
    if prompt and '"""' not in prompt:
        lines.append(f'SYSTEM """{prompt}"""')
    lines += [f'PARAMETER stop "{end}"' for end in ends if '"' not in end and end.isprintable()]
    # The whole distribution, as in training.
    lines += [
        f"PARAMETER temperature {sampling.temperature:g}",
        f"PARAMETER num_predict {sampling.max_new_tokens}",
        "PARAMETER top_k 0",
        "PARAMETER top_p 1",
        "PARAMETER repeat_penalty 1",
    ]
    return "\n".join([*lines, ""])


def pieces_of(render: Render) -> tuple[dict[str, tuple[str, str]], str] | None:
    """What a template writes before and after a message of each role, and before the next reply.

    None: it does more than that.
    """
    try:
        start = render([user(MARKS["user"])])
        before_user, _, prompt = start.partition(MARKS["user"])
        whole = render(
            [
                system(MARKS["system"]),
                user(MARKS["user"]),
                assistant(MARKS["assistant"]),
                user(MARKS["user"]),
            ]
        )
        first, _, rest = whole.partition(MARKS["system"])
        middle, _, rest = rest.partition(MARKS["user"])
        after_user, _, rest = rest.partition(MARKS["assistant"])
        after_reply, _, end = rest.partition(MARKS["user"])
    except Exception:  # of a template, which may refuse a system message
        return None
    if after_user != prompt or end != prompt:
        return None
    # A user's message is always followed by a reply, so what ends the one may as well begin the other.
    pieces = {
        "system": (first, middle.removesuffix(before_user)),
        "user": (before_user, ""),
        "assistant": (prompt, after_reply.removesuffix(before_user)),
    }
    if any(_joined(pieces, prompt, each) != render(each) for each in TRIALS):
        return None
    return pieces, prompt


def _joined(
    pieces: dict[str, tuple[str, str]], prompt: str, conversation: Sequence[ChatMessage]
) -> str:
    texts = [each["content"].join(pieces[each["role"]]) for each in conversation]
    return "".join([*texts, prompt])


def _in_go(pieces: dict[str, tuple[str, str]], prompt: str) -> str:
    """The same in the language of Go's templates, which Ollama has."""
    roles = [
        f'{{{{ if eq .Role "{role}" }}}}{before}{{{{ .Content }}}}{after}{{{{ end }}}}'
        for role, (before, after) in pieces.items()
    ]
    return f"{{{{ range .Messages }}}}{''.join(roles)}{{{{ end }}}}{prompt}"
