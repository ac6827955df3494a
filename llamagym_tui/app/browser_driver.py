"""Textual's driver of a browser session. Its app ends with its input: then the visitor or the server is gone."""

from textual.drivers.web_driver import WebDriver

from llamagym_tui.app.terminal import MustLeave


class BrowserDriver(WebDriver):
    def run_input_thread(self) -> None:
        super().run_input_thread()
        self._app.post_message(MustLeave())
