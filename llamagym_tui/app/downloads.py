"""Asks before a model is downloaded, a part of `LlamaGymApp`; the trainer downloads it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from textual import work

from llamagym_tui import model_registry
from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.config import RunConfig
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.user_files import cache_dir

SHIPPED = RunConfig(agent="", run_dir="").model
"""The default model, which ships with the package."""


class DownloadQuestions(PersonalApp):
    def require_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        """Call `then` if the model of a run is here or the person lets it be downloaded, else `otherwise`."""
        if config.model == SHIPPED:
            then()
        else:
            self._look_for_model(config, then, otherwise)

    @work(group="model")
    async def _look_for_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        # The hub's library takes a while to be imported.
        download = await asyncio.to_thread(model_registry.download_of, config.model)
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

        kept = f" Converted, it is kept in {cache_dir()}." if download.package else ""
        question = ConfirmDialog(
            "download the model?",
            f"{download.name} is not on this machine. It is downloaded once: {download.source}.{kept}",
            "The model that ships with the app needs no download: --model bundled.",
            yes="download it",
            no="leave it",
        )
        self.push_screen(question, answered)
