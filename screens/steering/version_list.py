"""The versions of the system prompt, each with the mean return under it."""

from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.prompts import Played, PromptVersion, words
from llamagym_tui.state.run import RunState


class VersionList(OptionList):
    HELP = (
        "Versions of the prompt, the newest first, each with its mean return ± half the 95 % confidence interval. "
        "In training the policy changes too: c plays the chosen version and the active one on the same seeds. "
        "enter copies a version into the draft."
    )
    BINDINGS = [
        Binding(
            "c",
            "screen.compare",
            "Compare",
            tooltip="Compare with the active version on the same seeds.",
            id="prompt.compare",
        ),
    ]
    DEFAULT_CSS = "VersionList { height: auto; max-height: 40%; border: none; padding: 0; background: $surface; }"

    @property
    def chosen(self) -> int | None:
        option = self.highlighted_option
        return None if option is None or option.id is None else int(option.id)

    def show(self, state: RunState) -> None:
        # Without a run the trainer has confirmed none yet.
        active = None if state.run is None else state.prompt_version
        shown = state.prompts[::-1]
        names = [str(known.version) for known in shown]
        is_same = names == [option.id for option in self.options]
        if not is_same:
            self.set_options([Option("", id=name) for name in names])
            self.highlighted = 0 if names else None
        for known in shown:
            line = version_line(
                known, state.prompts[0].text, "active" if known.version == active else ""
            )
            self.replace_option_prompt(str(known.version), line)


def version_line(known: PromptVersion, first: str, mark: str) -> Content:
    """A version in two lines or three: its words where they differ from the first one's, and its returns."""
    head = f"v{known.version} {mark}".rstrip()
    updates = ""
    if known.updates is not None:
        updates = "  update " + "–".join(f"{n:,}" for n in dict.fromkeys(known.updates))
    title = Content.assemble((f"{head:<11}", "bold"), words(known.text, first), (updates, ASIDE))
    played = [
        f"  {mode} {text}"
        for mode in ("train", "inference")
        if (text := _played(known.under(mode)))
    ]
    lines = [Content.styled(line, ASIDE) for line in played or ["  no episode yet"]]
    return Content("\n").join([title, *lines])


def _played(played: Played) -> str:
    last = played.last
    return "" if last is None else f"{last.text} over {last.episodes:,}"
