"""`serve`: the app in a browser by textual-serve, a process for each visitor, or for each seat of a class.

textual-serve checks nothing. Here a request needs this server's Host, its Origin if it has one (a socket must), and the
token that is drawn at the start. A session ends with its socket, by force if it hangs; it opens no address and offers
no file. `REFUSED_IN_BROWSER` has the actions that it may not do. A visitor keeps a seat by a cookie.
"""

import asyncio
import os
import secrets
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import textual_serve.server
from aiohttp import web
from jinja2 import Template
from rich.console import Console
from rich.live import Live
from rich.text import Text
from textual_serve.app_service import AppService

from llamagym_tui.app.leaving import STOP_S
from llamagym_tui.app.trainer_client import own_python
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.literal import echo, literal
from llamagym_tui.runs.run_store import new_run_dir
from llamagym_tui.screens.play.classroom import Classroom
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.catalog import absolute_spec, agent_name
from llamagym_tui.setup.trust import require_trusted
from llamagym_tui.user_files import BROWSER, data_dir, file_text

LOOPBACK = ("127.0.0.1", "localhost")
END_S = STOP_S + 10
"""Seconds for an app and its trainer to end after the visitor has gone."""
MOST_CELLS = 400
"""Most columns and most rows of a session; a visitor names them, and they take memory."""
LOOK_S = 1.0
"""Seconds between two looks at a class."""
COOKIE = "visitor"
"""Name of the cookie by which a visitor keeps a seat."""


class Session(AppService):
    """The process of one visitor."""

    async def set_terminal_size(self, width: int, height: int) -> None:
        await super().set_terminal_size(_cells(width), _cells(height))

    async def on_data(self, payload: bytes) -> None:
        # It reads on where the visitor has gone, or the app would block.
        with suppress(ConnectionError, RuntimeError):
            await super().on_data(payload)

    async def on_meta(self, data: bytes) -> None:
        """Neither open an address nor offer a file in the visitor's browser."""

    on_packed = on_meta

    async def run(self) -> None:
        await super().run()
        await self.remote_close()

    async def stop(self) -> None:
        process = self._process
        if process is None or self._task is None:
            return
        self.stdin.close()
        await asyncio.wait([self._task, asyncio.ensure_future(process.wait())], timeout=END_S)
        if process.returncode is None:
            process.kill()  # its trainer sees that its commands end, saves, and ends too


class Server(textual_serve.server.Server):
    def __init__(self, words: Sequence[str], *, host: str, port: int, sessions: int) -> None:
        """A server of `llamagym-tui WORDS` that listens nowhere yet, with at most `sessions` at a time."""
        command = [*own_python("llamagym_tui"), *words]
        super().__init__("exec " + shlex.join(command), host, port)
        self.token = secrets.token_urlsafe(24)
        self._names = LOOPBACK if host in LOOPBACK else (host.lower(),)
        self._most = sessions
        self._sockets: dict[web.WebSocketResponse, str] = {}
        """Open sockets, with the command of each."""

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._checked])
        app.router.add_get(f"/{self.token}/", self.handle_index)
        app.router.add_get(f"/{self.token}/ws", self.handle_websocket)
        app.router.add_static(f"/{self.token}/static", self.statics_path, show_index=False)
        app.on_shutdown.append(self.on_shutdown)
        return app

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Answer only requests for this server's own address that know the token."""
        _, token, *place = request.path.split("/")
        is_socket = place == ["ws"]
        name = request.host.partition(":")[0].lower()  # behind a tunnel, the port is another one
        if name not in self._names:
            raise web.HTTPForbidden(text="The Host of this request is not this server's.")
        origin = request.headers.get("Origin")
        may_lack_origin = not is_socket
        if origin != f"http://{request.host}" and not (origin is None and may_lack_origin):
            raise web.HTTPForbidden(text="This request comes from another site.")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            raise web.HTTPForbidden(
                text="The address lacks the token: take the one that the server has printed."
            )
        if is_socket or place == [""]:
            self._require_room(request)
        return await handler(request)

    def _require_room(self, request: web.Request) -> None:
        """Raise HTTPServiceUnavailable if there is no session for this visitor."""
        if len(self._sockets) >= self._most:
            raise web.HTTPServiceUnavailable(
                text="All sessions are taken; try again later, or serve with --sessions."
            )

    def _command_for(self, request: web.Request) -> str:
        """The command of a visitor's session."""
        return self.command

    async def handle_index(self, request: web.Request) -> web.Response:
        page = Template(file_text(Path(__file__).with_suffix(".html")), autoescape=True)
        text = page.render(host=request.host, token=self.token)
        return web.Response(
            text=text, content_type="text/html", headers={"X-Frame-Options": "DENY"}
        )

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=2**20)
        command = self._command_for(request)
        session = Session(
            command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,
            download_manager=self.download_manager,
        )
        self._sockets[websocket] = command
        try:
            await websocket.prepare(request)
            width = _cells(request.query.get("width", "80"))
            height = _cells(request.query.get("height", "80"))
            await session.start(width, height)
            await self._process_messages(websocket, session)
        finally:
            # aiohttp cancels a handler whose connection is lost.
            await asyncio.shield(self._ended(session, websocket))
        return websocket

    async def _ended(self, session: Session, websocket: web.WebSocketResponse) -> None:
        await session.stop()
        del self._sockets[websocket]

    async def on_shutdown(self, app: web.Application) -> None:
        await asyncio.gather(*(each.close() for each in self._sockets))


class ClassServer(Server):
    def __init__(self, classroom: Classroom, *, host: str, port: int) -> None:
        """Make a server that listens nowhere yet."""
        seats = classroom.record.seats
        super().__init__(["seat", str(classroom.folder)], host=host, port=port, sessions=seats)
        self._classroom = classroom
        self._seats: dict[str, int] = {}
        """The seat of each visitor, by cookie."""
        self._locks = [asyncio.Lock() for _ in range(seats + 1)]
        """Held, for each seat, by its session."""

    def application(self) -> web.Application:
        app = super().application()
        app.cleanup_ctx.append(self._with_table)
        return app

    def _require_room(self, request: web.Request) -> None:
        # A browser without the cookie would take a new seat each time that its socket connects.
        if COOKIE not in request.cookies and request.path.endswith("/ws"):
            raise web.HTTPForbidden(
                text="A seat is kept by a cookie, and this browser sent none: allow cookies, then reload the page."
            )
        is_new = request.cookies.get(COOKIE) not in self._seats
        if is_new and len(self._seats) >= self._most:
            raise web.HTTPServiceUnavailable(
                text=f"All {self._most} seats of this class are taken; yours opens in the browser that has it."
            )

    async def handle_index(self, request: web.Request) -> web.Response:
        response = await super().handle_index(request)
        if COOKIE not in request.cookies:
            response.set_cookie(
                COOKIE,
                secrets.token_urlsafe(24),
                path=f"/{self.token}/",
                httponly=True,
                samesite="Strict",
            )
        return response

    def _seat_of(self, request: web.Request) -> int:
        """The visitor's seat; a new visitor gets the next free one."""
        return self._seats.setdefault(request.cookies[COOKIE], len(self._seats) + 1)

    def _command_for(self, request: web.Request) -> str:
        return f"{self.command} {self._seat_of(request)}"

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Open the session of a seat, and end one that is open in another window."""
        command = self._command_for(request)
        for websocket, other in list(self._sockets.items()):
            if other == command:
                await websocket.close()
        async with self._locks[self._seat_of(request)]:
            return await super().handle_websocket(request)

    async def _with_table(self, app: web.Application) -> AsyncIterator[None]:
        """Show the table while the server runs."""
        looking = asyncio.create_task(show_table(self._classroom))
        yield
        looking.cancel()


def serve(words: Sequence[str], *, host: str, port: int, sessions: int, allowed: str) -> None:
    """Serve `llamagym-tui` with these words; the arguments are those of `Server` and `run`."""
    run(Server(words, host=host, port=port, sessions=sessions), allowed)


async def show_table(classroom: Classroom) -> None:
    """Show the table of a class on stderr, if that is a terminal, again and again."""
    console = Console(file=sys.stderr)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while console.is_terminal:
            live.update(Text(table_text(classroom)), refresh=True)
            await asyncio.sleep(LOOK_S)


def table_text(classroom: Classroom) -> str:
    """The table of a class, or the error of a seat's file."""
    try:
        return literal("\n".join(classroom.table()))
    except LlamaGymError as error:
        return literal(str(error))


def serve_class(config: RunConfig, seats: int, *, host: str, port: int) -> None:
    """Let the model play its part, serve a class in a new folder until ctrl+c, then print its table.

    Raises:
        LlamaGymError: the model cannot play, the folder cannot be written, or the agent's code is not trusted.
        UsageError: the address cannot be listened on.
    """
    from llamagym_tui.cli.evaluation import class_record

    record = class_record(config, seats)
    require_trusted(config.agent)
    folder = new_run_dir(agent_name(config.agent), parent=data_dir() / "classes")
    classroom = Classroom.begun(folder, record)
    server = ClassServer(classroom, host=host, port=port)
    echo(f"A class of {seats}. Its episodes: {folder}", to=sys.stderr)
    run(server, f"seat {absolute_spec(config.agent)}")
    echo(table_text(classroom), lines=True)


def run(server: Server, allowed: str) -> None:
    """Serve until ctrl+c, then end every session in order.

    Args:
        server: the server.
        allowed: what its sessions may do, as `BROWSER` has it.
    Raises:
        UsageError: the address cannot be listened on.
    """
    os.environ[BROWSER] = allowed
    host, port = server.host, server.port

    def listening(_: object) -> None:
        echo(f"http://{host}:{port}/{server.token}/")
        echo(
            "Open this address in a browser; whoever has it can do the same. ctrl+c ends all sessions.",
            to=sys.stderr,
        )
        if host not in LOOPBACK:
            echo(
                "The page crosses the network in clear text: `ssh -L` without --host is safer.",
                to=sys.stderr,
            )

    try:
        web.run_app(
            server.application(),
            host=host,
            port=port,
            print=listening,
            access_log=None,
            shutdown_timeout=END_S + 5,
        )
    except OSError as error:
        other = "host" if isinstance(error, socket.gaierror) else "port"
        why = error.strerror or error
        raise UsageError(
            f"{host}:{port} cannot be served on ({why}); try another --{other}."
        ) from error


def _cells(count: Any) -> int:
    """The number of columns or rows for a visitor who asks for `count`."""
    return min(max(int(count), 1), MOST_CELLS)
