"""The dialog of a branch: a new run from a checkpoint of a past one, with other settings or another prompt."""

from pathlib import Path
from typing import NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.config import RunConfig
from llamagym_tui.config.typed import assigned
from llamagym_tui.errors import LlamaGymError, UntrustedAgent
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.setup.branch import kept_updates
from llamagym_tui.setup.run_config import run_config


class Branch(NamedTuple):
    """A new run that begins at a checkpoint of another."""

    of: str
    """The run and the update, as ``RUN_DIR@UPDATE``."""
    assignments: list[str]
    """Other settings, as ``NAME=VALUE``."""
    system_prompt: str | None
    """None for the prompt of the run."""

    def config(self) -> RunConfig:
        """The settings of the new run; raises what `run_config` raises."""
        given = assigned(self.assignments) | {"parent": self.of}
        if self.system_prompt is not None:
            given["system_prompt"] = self.system_prompt
        return run_config(None, given)


class BranchDialog(ModalScreen[Branch | None]):
    """Dismissed with the chosen branch, or with None."""

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
        branch = Branch(f"{self._run_dir}@{update}", settings.split(), prompt or None)
        try:
            branch.config()
        except UntrustedAgent:
            pass  # the app asks for trust
        except LlamaGymError as error:  # what is typed stays
            self.notify(str(error), severity="error")
            return
        self.dismiss(branch)
