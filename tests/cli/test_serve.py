"""`serve`: who is answered, what a session is and when it ends; in Chromium, as a visitor sees it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual_serve")

from aiohttp import (
    ClientSession,
    ClientWebSocketResponse,
    CookieJar,
    DummyCookieJar,
    WSMsgType,
    WSServerHandshakeError,
)
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from llamagym_tui.cli import serve
from llamagym_tui.cli.main import app
from llamagym_tui.screens.play.classroom import Classroom
from tests.recorded_run import record
from tests.screens.play.test_classroom import classroom

APP = """
import json, os, sys, time
write = lambda kind, text: (sys.stdout.buffer.write(kind + len(text).to_bytes(4, "big") + text), sys.stdout.flush())
sys.stdout.buffer.write(b"__GANGLION__\\n")
write(b"D", f"pid {os.getpid()} given {'+'.join(sys.argv[1:])} columns {os.environ['COLUMNS']}".encode())
write(b"M", json.dumps({"type": "open_url", "url": "http://elsewhere", "new_tab": True}).encode())
write(b"M", json.dumps({"type": "deliver_file_start", "key": "k", "path": "/etc/passwd", "open_method": "download",
                        "mime_type": "", "encoding": "", "name": None}).encode())
while packet := os.read(0, 65536):
    write(b"D", b"got " + packet)
while "stubborn" in sys.argv:
    time.sleep(1)
"""


@pytest.fixture(autouse=True)
def app_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "own_python", lambda module: [sys.executable, "-c", APP])


@asynccontextmanager
async def serving(*words: str, sessions: int = 2) -> AsyncIterator[tuple[ClientSession, str, str]]:
    """A client, the address up to the token, and the token of a server."""
    server = serve.Server(words, host="127.0.0.1", port=0, sessions=sessions)
    async with (
        TestServer(server.application(), host="127.0.0.1") as running,
        ClientSession() as client,
    ):
        yield client, f"http://127.0.0.1:{running.port}", server.token


async def status(client: ClientSession, url: str, **headers: str) -> int:
    async with client.get(url, headers=headers) as response:
        return response.status


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.05)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_home_or_a_run_is_served_and_a_run_to_more_and_without_an_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    run_dir = record(tmp_path / "runs" / "one", [])
    served: list[Any] = []
    monkeypatch.setattr(
        serve, "serve", lambda command, **options: served.append((command, options))
    )
    for words in ([], ["--watch", "one"], ["--watch", "one", "--sessions", "3", "--host", "::1"]):
        assert CliRunner().invoke(app, ["serve", *words]).exit_code == 0
    here = {"host": "127.0.0.1", "port": 8000, "sessions": 2, "allowed": "play"}
    watched = ["replay", str(run_dir), "--follow"]
    assert served == [
        ([], here),
        (watched, {**here, "sessions": 30, "allowed": "watch"}),
        (watched, {**here, "sessions": 3, "allowed": "watch", "host": "::1"}),
    ]
    refused = CliRunner().invoke(app, ["serve", "--watch", "one", "blackjack"])
    assert "--watch shows a run that is there; leave the agent out." in refused.stderr


async def test_the_page_needs_the_token_and_loads_from_here_alone():
    async with serving() as (client, base, token):
        async with client.get(f"{base}/{token}/") as response:
            assert response.status == 200
            text = await response.text()
            assert response.headers["X-Frame-Options"] == "DENY"
        assert f'data-session-websocket-url="ws://{base[7:]}/{token}/ws"' in text
        assert "//" not in text.replace(f"ws://{base[7:]}", "")
        assert (
            f"default-src 'none'; script-src 'self' 'nonce-{token}'; connect-src 'self' ws://{base[7:]};"
            in text
        )
        assert await status(client, f"{base}/{token}/static/js/textual.js") == 200
        for place in (
            "/",
            "/ws",
            "/static/js/textual.js",
            f"/{token}x/",
            f"/{token[:-1]}/",
            "/static/",
        ):
            assert await status(client, base + place) == 403


async def test_a_name_that_was_made_to_point_here_is_refused_and_a_tunnel_is_not():
    async with serving() as (client, base, token):
        page = f"{base}/{token}/"
        assert await status(client, page, Host="evil.example") == 403
        assert await status(client, page, Host="127.0.0.1.evil.example:8000") == 403
        assert await status(client, page, Host="localhost:9999") == 200
        assert (
            await status(client, page, Host="localhost:9999", Origin="http://localhost:9999") == 200
        )


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://{here}", None]
)
async def test_a_socket_is_opened_from_the_servers_own_page_alone(origin: str | None):
    async with serving() as (client, base, token):
        headers = {} if origin is None else {"Origin": origin.format(here=base[7:])}
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(f"{base}/{token}/ws", headers=headers)
        assert refused.value.status == 403


async def test_keys_reach_the_app_and_neither_addresses_nor_files_come_back():
    async with serving() as (client, base, token):
        session = await client.ws_connect(
            f"{base}/{token}/ws?width=90000&height=1", headers={"Origin": base}
        )
        first = await session.receive_bytes()
        assert first.endswith(b"columns 400")
        await session.send_json(["stdin", "h"])
        received = await session.receive(timeout=10)
        assert received.type == WSMsgType.BINARY
        assert received.data == b"got D\x00\x00\x00\x01h"
        await session.send_json(["resize", {"width": 90000, "height": 0}])
        resized = (await session.receive_bytes()).partition(b"{")[2]
        assert json.loads(b"{" + resized) == {"type": "resize", "width": 400, "height": 1}


async def test_an_app_ends_with_its_socket_and_makes_room():
    async with serving(sessions=1) as (client, base, token):
        url, headers = f"{base}/{token}/ws", {"Origin": base}
        session = await client.ws_connect(url, headers=headers)
        first = await session.receive_bytes()
        assert first.endswith(b"columns 80")
        pid = int(first.split()[1])
        assert await status(client, f"{base}/{token}/") == 503
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(url, headers=headers)
        assert refused.value.status == 503
        assert await status(client, f"{base}/{token}/static/js/textual.js") == 200
        await session.close()
        await until(lambda: not is_there(pid))
        await asyncio.sleep(0.5)
        assert await status(client, f"{base}/{token}/") == 200


async def test_a_server_that_ends_closes_its_sockets_and_their_apps():
    server = serve.Server([], host="127.0.0.1", port=0, sessions=1)
    async with (
        ClientSession() as client,
        TestServer(server.application(), host="127.0.0.1") as running,
    ):
        base = f"http://127.0.0.1:{running.port}"
        socket = await client.ws_connect(f"{base}/{server.token}/ws", headers={"Origin": base})
        pid = int((await socket.receive_bytes()).split()[1])
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(running.close())
            async for _ in socket:  # ends when the socket is closed
                pass
        await until(lambda: not is_there(pid))


@asynccontextmanager
async def a_class(folder: Path) -> AsyncIterator[tuple[str, Classroom]]:
    """The address of a class of three, whose seats are `APP`."""
    room = classroom(folder)
    server = serve.ClassServer(room, host="127.0.0.1", port=0)
    async with TestServer(server.application(), host="127.0.0.1") as running:
        yield f"http://127.0.0.1:{running.port}/{server.token}/", room


def visitor() -> ClientSession:
    """A browser of its own."""
    return ClientSession(cookie_jar=CookieJar(unsafe=True))


async def sit(browser: ClientSession, url: str) -> tuple[ClientWebSocketResponse, int, str]:
    """Open the page and its socket; the socket, and of the seat its process id and its number."""
    assert await status(browser, url) == 200
    origin = url[: url.index("/", 8)]
    socket = await browser.ws_connect(f"{url}ws", headers={"Origin": origin})
    words = (await socket.receive_bytes()).decode().split()
    return socket, int(words[1]), words[3].rpartition("+")[2]


async def test_a_class_gives_each_browser_a_seat_and_refuses_one_more_with_a_sentence(
    tmp_path: Path,
):
    async with (
        a_class(tmp_path) as (url, _),
        visitor() as one,
        visitor() as two,
        visitor() as three,
        visitor() as late,
    ):
        assert await status(late, url) == 200  # who only looks takes no seat
        sat = [await sit(browser, url) for browser in (one, two, three)]
        assert [seat for _, _, seat in sat] == ["1", "2", "3"]
        async with late.get(url) as response:
            assert response.status == 503
            assert (await response.text()).startswith("All 3 seats of this class are taken;")
        with pytest.raises(WSServerHandshakeError):
            await late.ws_connect(f"{url}ws", headers={"Origin": url[: url.index("/", 8)]})
        # In another window the seat goes on, and ends in the first one.
        again = await sit(two, url)
        assert again[2] == "2"
        assert [is_there(pid) for _, pid, _ in [*sat, again]] == [True, False, True, True]


async def test_a_browser_that_keeps_no_cookie_takes_no_seat(tmp_path: Path):
    async with (
        a_class(tmp_path) as (url, _),
        ClientSession(cookie_jar=DummyCookieJar()) as forgetful,
        visitor() as usual,
    ):
        for _ in range(3):
            with pytest.raises(WSServerHandshakeError, match="403"):
                await sit(forgetful, url)
        _, _, seat = await sit(usual, url)
        assert seat == "1"


def test_a_class_is_served_after_the_model_has_played_its_episodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    served: list[tuple[serve.ClassServer, str]] = []
    monkeypatch.setattr(serve, "run", lambda *given: served.append(given))
    done = CliRunner().invoke(app, ["serve", "--seats", "4", "blackjack", "--seed", "5"])
    assert done.exit_code == 0, done.output
    ((server, allowed),) = served
    assert allowed == "seat blackjack"
    record = server._classroom.record
    assert (record.seats, record.config.seed, record.return_unit) == (4, 5, "chips a hand")
    assert len(record.match.returns) == 20
    assert str(record.config.system_prompt).startswith("You are playing Blackjack")
    assert server.command.endswith(f" seat {server._classroom.folder}")
    assert "more than the model" in done.stdout
