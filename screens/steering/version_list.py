"""Versions of the system prompt with the returns under each, and the word-by-word difference of two prompts."""

import re
from difflib import SequenceMatcher

from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.prompts import Played, PromptVersion, words
from llamagym_tui.state.run import RunState

MOST_WORDS = 4000
"""Words up to which two prompts are compared word by word; longer ones are compared line by line."""


class VersionList(OptionList):
    HELP = """
        Versions of the prompt, the present one and v0 first, with the updates of the policies that played them and the
        mean return ± half its 95 % confidence interval. In training the policy changes, so compare both: space marks
        one, c plays it and the one under the cursor on the same seeds. enter copies a version into the draft.
    """
    BINDINGS = [
        Binding(
            "space",
            "screen.mark",
            "Mark",
            tooltip="Compare with this one, not the active one.",
            id="prompt.mark",
        ),
        Binding(
            "slash",
            "screen.ask('filter')",
            "Filter",
            tooltip="Those in which words are.",
            id="prompt.filter",
        ),
        Binding(
            "c",
            "screen.compare",
            "Compare",
            tooltip="With the marked or active one.",
            id="prompt.compare",
        ),
    ]
    marked: int | None = None
    """Version that another one is compared with. None: the active one."""
    words = ""
    """What is in all that are listed."""
    DEFAULT_CSS = "VersionList { height: auto; max-height: 40%; border: none; padding: 0; background: $surface; }"

    def show(self, state: RunState) -> None:
        active = (
            None if state.run is None else state.prompt_version
        )  # no run: the trainer has confirmed none yet
        first, newest = state.prompts[:1], state.prompts[:0:-1]
        shown = [
            each
            for each in (*newest[:1], *first, *newest[1:])
            if self.words.lower() in f"v{each.version} {each.text}".lower()
        ]
        marks = {active: "active", self.marked: "marked"}
        lines = [
            version_line(known, state.prompts[0].text, marks.get(known.version, ""))
            for known in shown
        ]
        names = [str(known.version) for known in shown]
        if names == [option.id for option in self.options]:
            for name, line in zip(names, lines, strict=True):
                self.replace_option_prompt(name, line)
        else:
            self.set_options(
                [Option(line, id=name) for name, line in zip(names, lines, strict=True)]
            )
            self.highlighted = 0 if names else None


def version_line(known: PromptVersion, first: str, mark: str) -> Content:
    """A version in two lines or three: its words, unlike those of the first one, then its returns in each mode."""
    played = [
        f"  {mode} {text}"
        for mode in ("train", "inference")
        if (text := _played(known.under(mode)))
    ]
    head = f"v{known.version} {mark}".rstrip()
    updates = (
        ""
        if known.updates is None
        else "  update " + "–".join(f"{n:,}" for n in dict.fromkeys(known.updates))
    )
    title = Content.assemble((f"{head:<11}", "bold"), words(known.text, first), (updates, ASIDE))
    return Content("\n").join(
        [title, *(Content.styled(line, ASIDE) for line in played or ["  no episode yet"])]
    )


def _played(played: Played) -> str:
    last = played.last
    return "" if last is None else f"{last.text} over {last.episodes:,}"


def word_diff(old: str, new: str) -> Content:
    """The new text, with removed words as ``[-old-]`` and added ones as ``{+new+}``."""
    before, after = (re.findall(r"\s+|[^\s]+", text) for text in (old, new))
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
