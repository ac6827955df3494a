"""A page in headless Chromium, driven over its debugging socket."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
OPTIONS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"),
)
CODES = {"Escape": 27, "Enter": 13, "F5": 116, "F3": 114, "Home": 36, "End": 35}
"""Of keys that type nothing."""


class Page:
    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json(timeout=30)).get("id") != number:
            pass
        return answer.get("result")

    async def value_of(self, script: str) -> Any:
        found = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return found["result"].get("value")

    async def press(self, *keys: str) -> None:
        """Keys by their names, ``ctrl+s`` among them."""
        for key in keys:
            *control, name = key.split("+") if len(key) > 1 else [key]
            code = CODES.get(name) or ord(name.upper())
            what = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 2 * len(control)}
            text = {} if control or name in CODES else {"text": name}
            await self.call(
                "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **what, **text
            )
            await self.call("Input.dispatchKeyEvent", type="keyUp", **what)
            await asyncio.sleep(0.1)

    async def screenshot(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])
        )


@asynccontextmanager
async def page(url: str) -> AsyncIterator[Page]:
    """A page, opened; its browser ends with the block."""
    assert BROWSER is not None
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [
            BROWSER,
            *OPTIONS,
            f"--user-data-dir={folder}",
            "--window-size=1200,760",
            "about:blank",
        ]
        port = Path(folder, "DevToolsActivePort")
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as browser:
            try:
                async with asyncio.timeout(60):
                    while not port.exists() or port.read_text().count("\n") < 1:
                        await asyncio.sleep(0.1)
                place = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
                async with ClientSession() as client:
                    async with client.get(place) as response:
                        pages = [each for each in await response.json() if each["type"] == "page"]
                    async with client.ws_connect(
                        pages[0]["webSocketDebuggerUrl"], max_msg_size=2**26
                    ) as socket:
                        opened = Page(socket)
                        await opened.call("Page.navigate", url=url)
                        yield opened
            finally:
                browser.terminate()
