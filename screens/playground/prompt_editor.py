"""The editor of the system prompt (key `p`), with sentences to try, the versions so far and their comparison.

It lies in the lower left, so that the map stays in sight. The draft is on disk from its first change on. A prompt is
active once the trainer has confirmed it.
"""

import re
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList, TextArea

from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.commands import ComparePrompts
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.runs.model_registry import BUNDLED, find
from llamagym_tui.screens.playground.evaluation import EvaluationDialog
from llamagym_tui.screens.widgets.choices import Choices
from llamagym_tui.screens.widgets.dialogs import Dialog
from llamagym_tui.screens.widgets.fields import DraftArea, Words
from llamagym_tui.screens.widgets.frame import CommandAsked, OfRun
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.setup.run_config import read_prompt
from llamagym_tui.state.prompts import PromptVersion, words
from llamagym_tui.state.run import RunState
from llamagym_tui.user_files import data_dir, replace_file

SENTENCES = {
    "blackjack": (
        "Always hit.",
        "Stick at 17 or more.",
        "Hit when the dealer's card is above 4.",
    ),
    "cart_pole": ("Always go left.", "If the angle is above 50 go right, else left."),
}
"""Sentences that the bundled model follows, as its card has measured, by agent; of others its actions make some."""
HARDLY_FOLLOWS = (
    "Only the bundled model has learnt to follow prompts; this one may play on as before."
)


def sentences_to_try(state: RunState) -> tuple[str, ...]:
    """Sentences that may end a prompt; none before it is known which actions there are."""
    known = SENTENCES.get(state.config.agent)
    if known is not None or state.map_layout is None:
        return known or ()
    names = state.map_layout.action_names[:3]
    return tuple(f"Always choose {one_line(name)}." for name in names)


def draft_file(agent: str) -> Path:
    """The file of the draft of an agent's prompt."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", agent).strip("-.") or "agent"
    return data_dir() / "drafts" / f"{name}.txt"


class VersionList(Choices):
    HELP = (
        "Sentences to try, which enter puts at the end of the draft. Then versions of the prompt, the newest first, "
        "each with its mean return ± half the 95 % confidence interval. "
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
    DEFAULT_CSS = """
    VersionList {
        height: auto; max-height: 50%; border: none; padding: 0; background: $surface;
        &:focus { border: none; }
    }
    """

    @property
    def chosen(self) -> int | None:
        option = self.highlighted_option
        name = "" if option is None else option.id or ""
        return int(name) if name.isdecimal() else None


def choices(state: RunState) -> dict[str, Content]:
    """The sentences to try, by themselves, and the versions, by their numbers."""
    lines = {text: Content(f"try  {text}") for text in sentences_to_try(state)}
    for known in state.prompts[::-1]:
        # Without a run the trainer has confirmed none yet.
        is_active = state.run is not None and known.version == state.prompt_version
        mark = "active" if is_active else ""
        lines[str(known.version)] = version_line(known, state.prompts[0].text, mark)
    return lines


class PromptEditor(OfRun, Dialog[str | None]):
    """Edits a system prompt; dismissed with the new one, or with None if it did not change."""

    CSS_PATH = "prompt_editor.tcss"
    heading = "system prompt"
    BINDING_GROUP_TITLE = "Prompt"
    BINDINGS = [
        Binding(
            "ctrl+s",
            "apply",
            "Apply",
            tooltip="New episodes get this prompt.",
            id="prompt.apply",
        ),
        Binding(
            "ctrl+r",
            "revert",
            "Revert",
            tooltip="Replace the draft by the present prompt.",
            id="prompt.revert",
        ),
        Binding(
            "tab",
            "app.focus_next",
            "Sentences",
            tooltip="To the sentences and versions below the draft, and back.",
            id="prompt.next",
        ),
        Binding("escape", "leave", "Back", tooltip="Keep the draft for later.", id="prompt.leave"),
    ]

    def __init__(self, state: RunState, system_prompt: str) -> None:
        super().__init__(state)
        self._original = literal(system_prompt)
        self._draft = draft_file(state.config.agent)
        try:
            self._text = literal(read_prompt(self._draft))
        except UsageError:
            self._text = self._original
        self._message = "Your earlier draft is back." if self._text != self._original else ""
        entry = find(state.config.model)
        self._follows = entry is not None and entry.name == BUNDLED

    def body(self) -> ComposeResult:
        yield DraftArea(self._text, id="draft")
        yield VersionList(id="versions", markup=False)
        yield Words(id="editor-status")

    def on_mount(self) -> None:
        draft = self.query_one(DraftArea)
        draft.move_cursor(draft.document.end)

    def show(self, state: RunState) -> None:
        self._state = state
        newest = str(state.prompts[-1].version) if state.prompts else ""
        self.query_one(VersionList).show(choices(state), newest)
        self._notice(self._message)

    def _notice(self, text: str) -> None:
        """Show a message and the status."""
        self._message = text
        status = status_text(self._state, key_of(self.app, "prompt.apply", "ctrl+s"))
        note = "" if self._follows else f"{HARDLY_FOLLOWS} "
        line = Content.assemble(
            (f"{text} " if text else "", "bold"), (note, "$warning"), literal(status)
        )
        self.query_one("#editor-status", Words).update(line)

    @on(TextArea.Changed)
    def keep(self) -> bool:
        """Write the draft; False if it could not be written."""
        text = self.query_one(DraftArea).text
        try:
            if text == self._original:
                self._draft.unlink(missing_ok=True)
            else:
                replace_file(self._draft, f"{text}\n".encode())
        except OSError as error:
            self._notice(one_line(f"The draft was not saved: {error}"))
            return False
        return True

    def action_apply(self) -> None:
        text = self.query_one(DraftArea).text
        is_changed = text != self._original
        self._original = text  # so that no draft is kept
        self.keep()
        self.dismiss(text if is_changed else None)

    def action_revert(self) -> None:
        self._replace_draft(self._original, "The draft is the prompt again; ctrl+z undoes this.")

    def action_leave(self) -> None:
        if self.keep():
            self.dismiss(None)

    def _version(self, number: int | None) -> PromptVersion | None:
        return next((known for known in self._state.prompts if known.version == number), None)

    def action_compare(self) -> None:
        """Play the active version and the chosen one on the same seeds."""
        state = self._state
        a = self._version(state.prompt_version)
        b = self._version(self.query_one(VersionList).chosen)
        if a is None or b is None or a is b or not state.live:
            self._notice("Choose another version to compare it with the active one.")
            return
        numbers = (a.version, b.version)
        command = ComparePrompts(system_prompts=(a.text, b.text), versions=numbers)
        self.post_message(CommandAsked(command))
        self.app.push_screen(EvaluationDialog(state))

    @on(OptionList.OptionSelected)
    def take(self, event: OptionList.OptionSelected) -> None:
        """Copy a version into the draft, or put a sentence in the place of the one that was tried before."""
        if (known := self._version(self.query_one(VersionList).chosen)) is not None:
            self._replace_draft(known.text, f"v{known.version} is in the draft.")
            return
        text = self.query_one(DraftArea).text
        for sentence in sentences_to_try(self._state):
            text = text.removesuffix(sentence).rstrip()
        self._replace_draft(f"{text} {event.option.id}".lstrip(), "")

    def _replace_draft(self, text: str, message: str) -> None:
        draft = self.query_one(DraftArea)
        # As an edit, so that it can be undone.
        draft.replace(literal(text), (0, 0), draft.document.end)
        draft.focus()
        self._notice(message)


def status_text(state: RunState, apply_key: str) -> str:
    if state.run is None:
        return "The model is still loading; the prompt is requested when the run begins."
    if not state.live:
        return "The run has ended, so the prompt cannot be changed."
    pending = "" if state.prompt_requested is None else ", a newer one is pending"
    applies = f"{apply_key} applies the draft from the next episode on."
    return f"v{state.prompt_version} is active{pending}. {applies}"


def version_line(known: PromptVersion, first: str, mark: str) -> Content:
    """A version in two lines or three: its words where they differ from the first one's, and its returns."""
    head = f"v{known.version} {mark}".rstrip()
    updates = ""
    if known.updates is not None:
        updates = "  update " + "–".join(f"{n:,}" for n in dict.fromkeys(known.updates))
    title = Content.assemble((f"{head:<11}", "bold"), words(known.text, first), (updates, ASIDE))
    played = [
        f"  {mode} {last.text} over {last.episodes:,}"
        for mode in ("train", "inference")
        if (last := known.under(mode).last) is not None
    ]
    lines = [Content.styled(line, ASIDE) for line in played or ["  no episode yet"]]
    return Content("\n").join([title, *lines])
