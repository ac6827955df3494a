"""`serve`: who is answered, what a session is and when it ends; in Chromium, as a visitor sees it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
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
    WSMsgType,
    WSServerHandshakeError,
    web,
)
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from llamagym_tui.cli import classroom as cli_classroom
from llamagym_tui.cli import serve
from llamagym_tui.cli.main import app
from llamagym_tui.errors import UsageError
from llamagym_tui.screens.play.classroom import Classroom
from tests.cli.chromium import BROWSER, Page, page
from tests.recorded_run import record
from tests.screens.play.test_classroom import classroom, play

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


@asynccontextmanager
async def serving(*words: str, sessions: int = 2) -> AsyncIterator[tuple[ClientSession, str, str]]:
    """A client, the address up to the token, and the token of a server."""
    server = serve.Server(
        [sys.executable, "-c", APP, *words], host="127.0.0.1", port=0, sessions=sessions
    )
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


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "8123", "blackjack"],
        ["blackjack", "--envs", "8", "--port", "8123"],
        ["--envs", "8", "--port", "8123", "blackjack"],
    ],
)
def test_its_own_options_may_stand_before_the_agent_or_after_it(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
):
    served: list[Any] = []
    monkeypatch.setattr(
        serve, "serve", lambda command, **options: served.append((command, options))
    )
    assert CliRunner().invoke(app, ["serve", *words]).exit_code == 0
    ((command, options),) = served
    assert options == {
        "host": "127.0.0.1",
        "port": 8123,
        "sessions": 2,
        "allowed": "play blackjack",
    }
    own = [word for word in words if word not in ("--port", "8123")]
    assert command[command.index("play") + 1 :] == own


def test_home_or_a_run_is_served_and_a_run_to_more_and_without_an_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    run_dir = record(tmp_path / "runs" / "one", [])
    served: list[Any] = []
    monkeypatch.setattr(
        serve, "serve", lambda command, **options: served.append((command[-2:], options))
    )
    for words in ([], ["--watch", "one"], ["--watch", "one", "--sessions", "3", "--host", "::1"]):
        assert CliRunner().invoke(app, ["serve", *words]).exit_code == 0
    here = {"host": "127.0.0.1", "port": 8000, "sessions": 2, "allowed": "play"}
    watched = ["replay", str(run_dir)]
    assert served == [
        (["-m", "llamagym_tui"], here),
        (watched, {**here, "sessions": 30, "allowed": "watch"}),
        (watched, {**here, "sessions": 3, "allowed": "watch", "host": "::1"}),
    ]
    refused = CliRunner().invoke(app, ["serve", "--watch", "one", "blackjack"])
    assert "--watch shows a run that is there; leave the agent out." in refused.stderr


@pytest.mark.parametrize(
    ("host", "fault", "other"),
    [
        ("localhost", PermissionError(13, "Permission denied"), "port"),
        ("far.example", socket.gaierror(-2, "Name not known"), "host"),
    ],
)
def test_the_address_is_printed_once_and_one_that_cannot_be_served_on_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    host: str,
    fault: OSError,
    other: str,
):
    given: dict[str, Any] = {}

    def run_app(application: web.Application, **options: Any) -> None:
        given.update(options)
        options["print"]("")
        raise fault

    monkeypatch.setattr(serve.web, "run_app", run_app)
    monkeypatch.setattr(serve.secrets, "token_urlsafe", lambda size: f"token-of-{size}")
    monkeypatch.setenv("LLAMAGYM_TUI_BROWSER", "")
    with pytest.raises(UsageError) as error:
        serve.serve(["app"], host=host, port=81, sessions=1, allowed="watch")
    assert str(error.value) == (
        f"{host}:81 cannot be served on ({fault.strerror}); try another --{other}."
    )
    assert os.environ[serve.BROWSER] == "watch"
    del given["print"]
    assert given == {"host": host, "port": 81, "access_log": None, "shutdown_timeout": 75}
    printed = capsys.readouterr()
    assert printed.out == f"http://{host}:81/token-of-24/\n"
    open_to_all = "The page crosses the network in clear text: `ssh -L` without --host is safer."
    assert printed.err.splitlines()[1:] == ([open_to_all] if other == "host" else [])


def test_an_option_that_the_playground_does_not_have_is_refused():
    refused = CliRunner().invoke(app, ["serve", "blackjack", "--prot", "8123"])
    assert refused.exit_code == 2
    assert "No such option: --prot" in str(refused.exception or refused.output) + refused.output


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


async def test_no_folder_is_listed_and_no_file_outside_is_served():
    async with serving() as (client, base, token):
        assert await status(client, f"{base}/{token}/static/") == 403
        assert await status(client, f"{base}/{token}/static/js/") == 403
        assert await status(client, f"{base}/{token}/static/%2e%2e/server.py") in (403, 404)
        assert await status(client, f"{base}/{token}/download/k") == 404


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


async def test_an_app_that_hangs_is_ended_by_force(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serve, "END_S", 0.3)
    async with serving("stubborn") as (client, base, token):
        session = await client.ws_connect(f"{base}/{token}/ws", headers={"Origin": base})
        pid = int((await session.receive_bytes()).split()[1])
        await session.close()
        await until(lambda: not is_there(pid))


async def test_the_socket_closes_with_the_app():
    async with serving() as (client, base, token):
        session = await client.ws_connect(f"{base}/{token}/ws", headers={"Origin": base})
        pid = int((await session.receive_bytes()).split()[1])
        os.kill(pid, signal.SIGKILL)
        assert (await session.receive(timeout=10)).type in (
            WSMsgType.CLOSE,
            WSMsgType.CLOSED,
            WSMsgType.CLOSING,
        )


@asynccontextmanager
async def a_class(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Classroom]]:
    """The address of a class of three, whose seats are `APP`."""
    monkeypatch.setattr(cli_classroom, "own_python", lambda module: [sys.executable, "-c", APP])
    monkeypatch.setattr(cli_classroom, "LOOK_S", 0.05)
    room = classroom(folder)
    server = cli_classroom.ClassServer(room, host="127.0.0.1", port=0)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with (
        a_class(tmp_path, monkeypatch) as (url, _),
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


async def test_the_table_of_a_class_is_kept_in_its_folder_as_it_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with a_class(tmp_path, monkeypatch) as (_, room):
        table = tmp_path / "table.txt"
        await until(table.exists)
        assert "more than the model" in table.read_text()
        play(room, 3, [1.0] * 20)
        await until(lambda: "seat 3  +1 ± 0" in table.read_text())
        room.seat_path(3).write_bytes(b"no demonstration\n" * 2)
        await until(lambda: "seat-03.jsonl, line 1" in table.read_text())
    assert "seat-03.jsonl, line 1" in table.read_text()


def test_a_class_is_served_after_the_model_has_played_its_episodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    served: list[tuple[cli_classroom.ClassServer, str]] = []
    monkeypatch.setattr(cli_classroom, "run", lambda *given: served.append(given))
    done = CliRunner().invoke(app, ["serve", "--seats", "4", "blackjack", "--seed", "5"])
    assert done.exit_code == 0, done.output
    ((server, allowed),) = served
    assert allowed == "seat blackjack"
    record = server._classroom.record
    assert (record.seats, record.config.seed, record.return_unit) == (4, 5, "chips a hand")
    assert len(record.match.returns) == 20
    assert str(record.config.system_prompt).startswith("You are playing Blackjack")
    command = shlex.split(server.command)
    assert command[-2:] == ["seat", str(server._classroom.folder)]
    assert "more than the model" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seats", "4"], "--seats takes an agent"),
        (["--seats", "4", "--sessions", "4", "blackjack"], "and neither --watch nor --sessions"),
        (["--seats", "4", "blackjack", "--episodes", "30"], "no option for episodes; leave it out"),
    ],
)
def test_what_a_class_cannot_take_is_refused_before_the_model_plays(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    classroom(tmp_path)
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["serve", *words])
    assert sentence in str(refused.exception or "") + refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
async def test_in_chromium_a_hand_is_played_a_prompt_swapped_and_another_site_refused(
    tmp_path: Path,
):
    data = tmp_path / "data"
    data.mkdir()
    (data / "tour-seen").touch()
    editor = tmp_path / "editor.sh"
    editor.write_text(f"#!/bin/sh\ntouch {tmp_path}/edited\n")
    editor.chmod(0o700)
    places = {"LLAMAGYM_TUI_DATA": data, "LLAMAGYM_TUI_CONFIG": data, "EDITOR": editor}
    environment = os.environ | {name: str(place) for name, place in places.items()}
    words = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "serve",
        "--port",
        str(free_port()),
        "blackjack",
        "--envs",
        "8",
    ]

    def events(kind: str) -> list[dict[str, Any]]:
        lines = [
            line
            for path in data.glob("runs/*/events.jsonl")
            for line in path.read_text().splitlines()
        ]
        return [event for line in lines if (event := json.loads(line))["type"] == kind]

    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            async with page(url) as visitor:
                await until(lambda: bool(events("RunStarted")), 120)
                await visitor.screenshot(tmp_path / "run.png")
                while not (demos := [*data.glob("demos/*.jsonl")]):
                    await visitor.press("h")  # to the table, and then hit until the hand is over
                    await asyncio.sleep(1)
                assert '"source":"human"' in demos[0].read_text()
                await visitor.press("Escape")
                await asyncio.sleep(3)
                await visitor.press("p")
                await asyncio.sleep(3)
                await visitor.press("F5", *" Hit always")
                await until(
                    lambda: any(
                        "Hit always" in path.read_text() for path in data.glob("drafts/*.txt")
                    ),
                    30,
                )
                await visitor.screenshot(tmp_path / "editor.png")
                await visitor.press("ctrl+s")
                await until(lambda: bool(events("PromptChanged")), 60)
                assert str(events("PromptChanged")[0]["system_prompt"]).endswith(" Hit always")
                await visitor.press("y")
                await visitor.screenshot(tmp_path / "serve.png")
                async with foreign_site() as elsewhere, page(elsewhere) as stranger:
                    await until_loaded(stranger, elsewhere)
                    opened = await stranger.value_of(OPENING % f"{url.replace('http', 'ws', 1)}ws")
                    assert opened == "refused"
                assert not (tmp_path / "edited").exists()
                assert not [*tmp_path.glob("*.svg")]
            await until(lambda: bool(events("RunFinished")), 60)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)


OPENING = """new Promise(done => {
    const socket = new WebSocket("%s");
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
})"""


@asynccontextmanager
async def foreign_site() -> AsyncIterator[str]:
    async def greet(request: web.Request) -> web.Response:
        return web.Response(text="<title>elsewhere</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", greet)
    async with TestServer(app, host="127.0.0.1") as running:
        yield f"http://localhost:{running.port}/"


async def until_loaded(opened: Page, url: str) -> None:
    for _ in range(100):
        if await opened.value_of("document.title") == "elsewhere":
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{url} did not load")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
