"""Editor of the system prompt (key `p` of the playground): a draft is requested from the trainer when it is applied.

The draft is on disk from its first change on; a prompt is shown as active once the trainer has confirmed it.
"""

import os
import re
import shlex
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static, TextArea

from llamagym_tui.errors import UsageError
from llamagym_tui.model_registry import BUNDLED
from llamagym_tui.protocol.commands import ComparePrompts
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.metrics.evaluation import EvaluationDialog
from llamagym_tui.screens.steering.sentences import followed
from llamagym_tui.screens.steering.version_list import VersionList, word_diff
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fields import DraftArea, OneLineInput
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.setup.run_config import read_prompt
from llamagym_tui.state.prompts import PromptVersion
from llamagym_tui.state.run import RunState
from llamagym_tui.user_files import data_dir, replace_file


def draft_file(agent: str) -> Path:
    """Where the draft of an agent's prompt is, if there is one."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", agent).strip("-.") or "agent"
    return data_dir() / "drafts" / f"{name}.txt"


def read_draft(path: Path, original: str) -> str:
    """The draft in a file; the original where there is none that can be read."""
    try:
        return literal(read_prompt(path))
    except UsageError:
        return original


def write_prompt(path: Path, text: str) -> None:
    """Write a prompt; the old file stays until the new one is whole, and folders are made.

    Raises:
        UsageError: it cannot be written.
    """
    path = path.expanduser()
    try:
        replace_file(path, f"{text}\n".encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error


FOLLOWED = "a sentence that the bundled model follows"
Purpose = Literal["load", "save", "filter"]
ASKED: dict[Purpose, tuple[str, str]] = {
    "load": ("Load the draft from which file?", "file to load, then enter"),
    "save": ("Save the draft to which file?", "file to save, then enter"),
    "filter": ("Which versions?", "words of a prompt, then enter; escape: all"),
}
"""What is typed into the line of the dialog: the question, and what stands in the empty line."""
KEEP_S = 0.5
"""Seconds from a change until the draft is on disk."""


class PathInput(OneLineInput):
    HELP = "A plain text file, to load or save, or words to find versions by. enter does it, escape cancels."


class PromptEditor(ModalScreen[str | None]):
    """Edits a system prompt; dismissed with the new one, or with None if it did not change."""

    CSS_PATH = ["../widgets/dialogs.tcss", "prompt_editor.tcss"]
    BINDING_GROUP_TITLE = "Prompt"
    BINDINGS = [
        Binding(
            "ctrl+s",
            "apply",
            "Apply",
            tooltip="Episodes that begin from now on have this prompt.",
            id="prompt.apply",
        ),
        Binding(
            "f2",
            "diff",
            "Diff",
            tooltip="Compare the draft with the chosen version.",
            id="prompt.diff",
        ),
        Binding(
            "f3", "ask('load')", "Load", tooltip="Replace the draft by a file.", id="prompt.load"
        ),
        Binding(
            "f4", "ask('save')", "Save", tooltip="Write the draft to a file.", id="prompt.save"
        ),
        Binding(
            "f5", "external", "Editor", tooltip="Edit the draft in $EDITOR.", id="prompt.editor"
        ),
        Binding(
            "f6",
            "sentences",
            "Sentences",
            tooltip="What it follows.",
            id="prompt.sentences",
            priority=True,
        ),
        Binding(
            "ctrl+r",
            "revert",
            "Revert",
            tooltip="Put the prompt in place of the draft.",
            id="prompt.revert",
        ),
        Binding(
            "escape",
            "leave",
            "Back",
            tooltip="Keep the prompt, and the draft for later.",
            id="prompt.leave",
        ),
    ]
    REFUSED_IN_BROWSER: ClassVar = {"play": {"external", "ask('load')", "ask('save')"}}
    """These open a file by its path, or start a program."""

    def __init__(self, state: RunState, system_prompt: str) -> None:
        super().__init__()
        self._state = state
        self._original = literal(system_prompt)
        self._draft = draft_file(state.config.agent)
        self._text = read_draft(self._draft, self._original)
        self._restored = self._text != self._original
        self._purpose: Purpose = "load"
        self._message = ""
        self._due: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as frame:
            frame.border_title = "system prompt"
            yield DraftArea(self._text, id="draft")
            with VerticalScroll(id="diff-pane"):
                yield Static(id="diff", markup=False)
            yield PathInput(id="path")
            yield VersionList(id="versions", markup=False)
            yield Static(id="editor-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        draft = self.query_one(DraftArea)
        draft.move_cursor(draft.document.end)
        self.show(self._state)
        if self.query_one(VersionList).option_count:
            self.query_one(VersionList).highlighted = 0

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one(VersionList).show(state)
        self._notice(self._message)

    def _notice(self, text: str) -> None:
        """Show a message above the status; empty: the status alone."""
        self._message = text
        discard = key_of(self.app, "prompt.revert", "ctrl+r")
        restored = (
            f"Your earlier draft was restored; {discard} discards it. " if self._restored else ""
        )
        status = status_text(self._state, key_of(self.app, "prompt.apply", "ctrl+s"))
        line = Content.assemble((f"{text} " if text else "", "bold"), restored + literal(status))
        self.query_one("#editor-status", Static).update(line)

    # The draft on disk

    @on(TextArea.Changed)
    def keep_soon(self) -> None:
        if self._due is not None:
            self._due.stop()
        self._due = self.set_timer(KEEP_S, self._keep)

    def _keep(self) -> bool:
        """Have the draft on disk; whether there is one, and it is."""
        text = self.query_one(DraftArea).text
        if text == self._original:
            self._draft.unlink(missing_ok=True)
            return False
        try:
            write_prompt(self._draft, text)
        except UsageError as error:
            self._notice(one_line(f"The draft was not saved: {error}"))
            return False
        return True

    def action_apply(self) -> None:
        text = self.query_one(DraftArea).text
        if self._due is not None:
            self._due.stop()
        self._draft.unlink(missing_ok=True)
        self.dismiss(None if text == self._original else text)

    def action_revert(self) -> None:
        self._restored = False
        self._replace_draft(
            self._original, "The prompt is in the draft; ctrl+z brings back what you wrote."
        )

    def action_leave(self) -> None:
        if self.has_class("-path") or self.has_class("-diff"):
            self._show_draft()
        elif self._keep():
            again = key_of(self.app, "prompt", "p")
            self.notify(f"Your draft of the prompt is kept; {again} shows it again.", markup=False)
            self.dismiss(None)
        elif self.query_one(DraftArea).text == self._original:
            self.dismiss(None)

    def _show_draft(self) -> None:
        self.remove_class("-path", "-diff")
        if self._purpose == "filter":
            self.query_one(PathInput).value = ""
        self.query_one(DraftArea).focus()
        self._notice("")

    # Versions

    def action_diff(self) -> None:
        if (known := self._chosen()) is None:
            self._notice("There is no version yet to compare with.")
            return
        self.toggle_class("-diff")
        draft = self.query_one(DraftArea).text
        self.query_one("#diff", Static).update(word_diff(known.text, draft))
        words = "the draft is the same" if draft == known.text else "[-removed-] {+added+}"
        self._notice(f"Compared with v{known.version}: {words}." if self.has_class("-diff") else "")

    def _chosen(self) -> PromptVersion | None:
        option = self.query_one(VersionList).highlighted_option
        return next(
            (known for known in self._state.prompts if option and option.id == str(known.version)),
            None,
        )

    def action_mark(self) -> None:
        versions, known = self.query_one(VersionList), self._chosen()
        versions.marked = (
            None if known is None or known.version == versions.marked else known.version
        )
        versions.show(self._state)

    def action_compare(self) -> None:
        state, marked = self._state, self.query_one(VersionList).marked
        wanted = state.prompt_version if marked is None else marked
        a, b = (
            next((known for known in state.prompts if known.version == wanted), None),
            self._chosen(),
        )
        if a is None or b is None or a is b or not state.live:
            self._notice("Two versions are compared: mark one with space, and choose another one.")
            return
        texts, versions = (a.text, b.text), (a.version, b.version)
        self.post_message(CommandAsked(ComparePrompts(system_prompts=texts, versions=versions)))
        self.app.push_screen(EvaluationDialog(state, compares=True))

    @on(OptionList.OptionSelected)
    def take_version(self) -> None:
        if (known := self._chosen()) is not None:
            self._replace_draft(known.text, f"v{known.version} is in the draft.")

    def _replace_draft(self, text: str, message: str) -> None:
        draft = self.query_one(DraftArea)
        # As an edit, so that it can be undone.
        draft.replace(literal(text), (0, 0), draft.document.end)
        self._show_draft()
        self._notice(message)

    def action_sentences(self) -> None:
        """Offer sentences to put at the end of the draft."""
        config = self._state.config
        known = followed(config.agent) if config.model == BUNDLED else []
        self._notice("" if known else "No sentences are measured for this model and this agent.")
        if known:
            self.app.search_commands(
                [(f"{kind}: {text}", partial(self._add, f" {text}")) for kind, text in known],
                FOLLOWED,
            )

    def _add(self, text: str) -> None:
        draft = self.query_one(DraftArea)
        draft.insert(text, location=draft.document.end)

    # Files

    def action_ask(self, purpose: Purpose) -> None:
        field = self.query_one(PathInput)
        if "filter" in (purpose, self._purpose):
            field.value = ""
        self._purpose = purpose
        self.remove_class("-diff")
        self.add_class("-path")
        question, placeholder = ASKED[purpose]
        self._notice(question)
        field.placeholder = placeholder
        field.focus()

    @on(Input.Changed, "#path")
    def filter(self, event: Input.Changed) -> None:
        versions = self.query_one(VersionList)
        versions.words = event.value.strip() if self._purpose == "filter" else ""
        versions.show(self._state)

    @on(Input.Submitted, "#path")
    def use_path(self, event: Input.Submitted) -> None:
        if self._purpose == "filter":
            self.query_one(VersionList).focus()
        if self._purpose == "filter" or not event.value.strip():
            return
        path = Path(event.value.strip())
        try:
            if self._purpose == "load":
                self._replace_draft(read_prompt(path), f"{one_line(path.name)} is in the draft.")
            else:
                write_prompt(path, self.query_one(DraftArea).text)
                self._show_draft()
                self._notice(f"Saved to {one_line(str(path))}.")
        except UsageError as error:
            self._notice(one_line(str(error)))

    def action_external(self) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            self._notice("$EDITOR is not set; set it and start the app again.")
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "prompt.txt"
            try:
                write_prompt(path, self.query_one(DraftArea).text)
                with self.app.suspend():
                    subprocess.run([*shlex.split(editor), str(path)], check=True)
                self._replace_draft(read_prompt(path), "")
            except SuspendNotSupported:
                self._notice("No other program can be run in this terminal.")
            except (OSError, ValueError, subprocess.CalledProcessError, UsageError) as error:
                self._notice(one_line(f"The editor {editor} failed: {error}"))


def status_text(state: RunState, apply_key: str) -> str:
    if state.run is None:
        return "The model is still loading; the prompt is requested when the run begins."
    if not state.live:
        return "The run has ended, so the prompt cannot be changed."
    active = f"v{state.prompt_version} is active"
    if state.prompt_requested is not None:
        return f"{active}, a newer one is pending. {apply_key} replaces the pending one."
    return f"{active}. {apply_key} applies the draft from the next episode on."
