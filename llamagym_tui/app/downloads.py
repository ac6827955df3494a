"""Asks before a model is downloaded for a run, a part of `LlamaGymApp`; the download itself is the trainer's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from textual import work

from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.config import RunConfig

SHIPPED = RunConfig(agent="", run_dir="").model
"""The model of a run that names none is always here."""


class DownloadQuestions(PersonalApp):
    def require_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        """Go on with a run whose model is here, or may be downloaded; `otherwise`: a person does not want that."""
        if config.model == SHIPPED:
            then()
        else:
            self._look_for_model(config, then, otherwise)

    @work(group="model")
    async def _look_for_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        from llamagym_tui.screens.widgets import download_dialog

        # The hub's library, which knows its cache, takes a while to be imported.
        download = await asyncio.to_thread(download_dialog.download_of, config.model)
        if download is None:
            then()
            return

        def answered(yes: bool | None) -> None:
            if yes:
                then()
                return
            with contextlib.suppress(OSError):
                Path(config.run_dir).rmdir()  # it was reserved, and is empty
            otherwise()

        self.push_screen(download_dialog.DownloadDialog(download), answered)
