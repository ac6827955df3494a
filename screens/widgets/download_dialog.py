"""The question before a model is downloaded: how much, from where, and what does without."""

from llamagym_tui.model_registry import Download
from llamagym_tui.model_registry import download_of as download_of
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.user_files import cache_dir


class DownloadDialog(ConfirmDialog):
    def __init__(self, download: Download) -> None:
        kept = f" Converted, it is kept in {cache_dir()}." if download.package else ""
        super().__init__(
            "download the model?",
            f"{download.name} is not on this machine. It is downloaded once: {download.source}.{kept}",
            "The model that ships with the app needs no download: --model bundled.",
            yes="download it",
            no="leave it",
        )
