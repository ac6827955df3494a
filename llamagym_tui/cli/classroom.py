"""`serve --seats`: a class in browsers. Whoever opens the link first gets a seat, and keeps it by a cookie.

The table of the class stands in the terminal and in ``table.txt`` while the class plays, and on stdout at the end.
"""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web
from rich.console import Console
from rich.live import Live
from rich.text import Text

from llamagym_tui.app.trainer_client import own_python
from llamagym_tui.cli.serve import Server, run
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import echo, literal
from llamagym_tui.runs.run_store import new_run_dir
from llamagym_tui.screens.play.classroom import ClassRecord, Classroom
from llamagym_tui.setup.catalog import absolute_spec, agent_name
from llamagym_tui.setup.trust import require_trusted
from llamagym_tui.user_files import data_dir, replace_file

TABLE_FILE = "table.txt"
LOOK_S = 1.0
"""Seconds between two looks at the class."""
COOKIE = "visitor"


class ClassServer(Server):
    def __init__(self, classroom: Classroom, *, host: str, port: int) -> None:
        """Make a server that listens nowhere yet."""
        seats = classroom.record.seats
        command = [*own_python("llamagym_tui"), "seat", str(classroom.folder)]
        super().__init__(command, host=host, port=port, sessions=seats)
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
        visitor = request.cookies.get(COOKIE) or secrets.token_urlsafe(24)
        return self._seats.setdefault(visitor, len(self._seats) + 1)

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
        """Keep the table up to date while the server runs."""
        looking = asyncio.create_task(show_table(self._classroom))
        yield
        looking.cancel()
        keep_table(self._classroom)


async def show_table(classroom: Classroom) -> None:
    """Show the table on stderr and keep it in its file, again and again."""
    console = Console(file=sys.stderr)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            text = keep_table(classroom)
            if console.is_terminal:
                live.update(Text(text), refresh=True)
            await asyncio.sleep(LOOK_S)


def keep_table(classroom: Classroom) -> str:
    """Write the table of a class into its file, and return it; an error stands in place of the table."""
    try:
        text = literal("\n".join(classroom.table()))
    except LlamaGymError as error:
        text = literal(str(error))
    with suppress(OSError):  # the episodes are on disk all the same
        replace_file(classroom.folder / TABLE_FILE, f"{text}\n".encode())
    return text


def serve(record: ClassRecord, *, host: str, port: int) -> None:
    """Serve a class in a new folder until ctrl+c, then print its table.

    Raises:
        LlamaGymError: the folder cannot be written, or the agent's code is not trusted.
        UsageError: the address cannot be listened on.
    """
    require_trusted(record.config.agent)
    folder = new_run_dir(agent_name(record.config.agent), parent=data_dir() / "classes")
    classroom = Classroom.begun(folder, record)
    server = ClassServer(classroom, host=host, port=port)
    echo(f"A class of {record.seats}. Its episodes and {TABLE_FILE}: {folder}", to=sys.stderr)
    run(server, f"seat {absolute_spec(record.config.agent)}")
    echo(keep_table(classroom), lines=True)
