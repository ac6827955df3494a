"""Versions of the system prompt with the returns under each, and the word-by-word difference of two prompts."""

import re
from difflib import SequenceMatcher

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.prompts import PromptVersion, Totals
from llamagym_tui.state.run import RunState

MOST_WORDS = 4000
"""Words up to which two prompts are compared word by word; longer ones are compared line by line."""


class VersionList(OptionList):
    HELP = """
        Versions of the prompt with the mean return under each and its 95 % confidence interval. In training the policy
        changes too: compare versions that were played in inference, or over the same updates. enter copies a version
        into the draft.
    """
    DEFAULT_CSS = """
    VersionList { height: auto; max-height: 5; border: none; padding: 0; background: $surface; }
    """

    def show(self, state: RunState) -> None:
        active = None if state.run is None else state.prompt_version  # no run: the trainer has confirmed none yet
        lines = [version_line(known, known.version == active) for known in reversed(state.prompts)]
        names = [str(known.version) for known in reversed(state.prompts)]
        if names == [option.id for option in self.options]:
            for name, line in zip(names, lines, strict=True):
                self.replace_option_prompt(name, line)
        else:
            self.clear_options().add_options([Option(line, id=name) for name, line in zip(names, lines, strict=True)])


def version_line(known: PromptVersion, active: bool) -> Content:
    played = [f"{mode} {text}" for mode in ("train", "inference") if (text := _played(known.under(mode)))]
    head = f"v{known.version}" + (" active" if active else "")
    return Content.assemble((f"{head:<11}", "bold"), (" · ".join(played) or "no episode yet", ASIDE))


def _played(totals: Totals) -> str:
    mean = totals.mean_return
    if mean is None:
        return ""
    level = " (95 %)" if mean.episodes > 1 else ""
    return f"{mean.text}{level} over {mean.episodes:,}"


def word_diff(old: str, new: str) -> Content:
    """The new text, with removed words as ``[-old-]`` and added ones as ``{+new+}``."""
    before, after = _words(old), _words(new)
    if len(before) + len(after) > MOST_WORDS:
        before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    pieces: list[Content] = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        removed, added = literal("".join(before[a:b])), literal("".join(after[c:d]))
        if kind == "equal":
            pieces.append(Content(added))
            continue
        pieces += [Content.styled(f"[-{removed}-]", "$error strike")] if removed else []
        pieces += [Content.styled(f"{{+{added}+}}", "bold $success")] if added else []
    return Content("").join(pieces)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)
