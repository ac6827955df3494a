"""Asks before a model is downloaded for a run, a part of `LlamaGymApp`; the download itself is the trainer's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from textual import work

from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.config import RunConfig
from llamagym_tui.model_registry import BUNDLED, Download, download_of
from llamagym_tui.user_files import cache_dir


class DownloadQuestions(PersonalApp):
    def require_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        """Go on with a run whose model is here, or may be downloaded; `otherwise`: a person does not want that."""
        if config.model == BUNDLED:
            then()
        else:
            self._look_for_model(config, then, otherwise)

    @work(group="model")
    async def _look_for_model(
        self, config: RunConfig, then: Callable[[], object], otherwise: Callable[[], object]
    ) -> None:
        # The hub's library, which knows its cache, takes a while to be imported.
        download = await asyncio.to_thread(download_of, config.model)
        if download is None:
            then()
            return
        from llamagym_tui.screens.widgets.dialogs import ConfirmDialog

        def answered(yes: bool | None) -> None:
            if yes:
                then()
                return
            with contextlib.suppress(OSError):
                Path(config.run_dir).rmdir()  # it was reserved, and is empty
            otherwise()

        dialog = ConfirmDialog(
            "download the model?", *download_texts(download), yes="download it", no="leave it"
        )
        self.push_screen(dialog, answered)


def download_texts(download: Download) -> tuple[str, str]:
    """What is downloaded, from where to where, and what does without."""
    kept = f" Converted, it is kept in {cache_dir()}." if download.package else ""
    return (
        f"{download.name} is not on this machine. It is downloaded once: {download.source}.{kept}",
        "The model that ships with the app needs no download: --model bundled.",
    )
