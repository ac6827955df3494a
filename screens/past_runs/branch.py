"""The dialog of a branch: a new run from a checkpoint of a past one, with other settings or another prompt."""

from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.runs.branch import kept_updates
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.settings import RunConfig
from llamagym_tui.settings.typed import assigned
from llamagym_tui.setup.run_config import run_config


class BranchDialog(ModalScreen[RunConfig | None]):
    """Dismissed with the settings of the new run, or with None."""

    CSS_PATH = "../widgets/dialogs.tcss"
    BINDING_GROUP_TITLE = "What if"
    BINDINGS = [
        Binding("enter", "branch", "Begin", tooltip="Begin another run from there.", priority=True),
        Binding("tab", "app.focus_next", "Next field", tooltip="To the next field."),
        Binding("escape", "dismiss", "Close", tooltip="Back to the runs."),
    ]

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._kept = list(map(str, kept_updates(run_dir)))

    def compose(self) -> ComposeResult:
        asked = (
            f"begin after update ({', '.join(self._kept)})",
            "settings to change, for example ppo.lr=1e-3 seed=1",
            "a new prompt",
        )
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(f"what if: a branch of {one_line(self._run_dir.name)}")
            for text, value in zip(asked, (self._kept[-1], "", ""), strict=True):
                yield Static(text, markup=False)
                yield SentenceInput(value)
        yield KeyBar()

    def action_branch(self) -> None:
        update, settings, prompt = (field.value.strip() for field in self.query(SentenceInput))
        if update not in self._kept:
            self.notify(
                f"There is no checkpoint after update {update!r}; choose {' or '.join(self._kept)}.",
                severity="error",
            )
            return
        try:
            given = assigned(settings.split()) | {"parent": f"{self._run_dir}@{update}"}
            if prompt:
                given["system_prompt"] = prompt
            self.dismiss(run_config(None, given))
        except LlamaGymError as error:  # what is typed stays
            self.notify(str(error), severity="error")
