"""`serve --seats`: a class in browsers. Whoever opens the link first gets a seat, and keeps it by a cookie.

The folder of the class has what was played, whatever becomes of the server. Its table stands in the terminal while the
class plays, in ``table.txt``, and on stdout at the end.
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
from llamagym_tui.run_store import new_run_dir
from llamagym_tui.screens.play.class_table import class_lines
from llamagym_tui.screens.play.classroom import TABLE_FILE, ClassRecord, Classroom
from llamagym_tui.setup.catalog import absolute_spec, agent_name
from llamagym_tui.user_files import data_dir, replace_file

LOOK_S = 1.0
"""Seconds between two looks at what the class has played."""
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
        """The visitor's seat, which is the next free one the first time."""
        visitor = request.cookies.get(COOKIE) or secrets.token_urlsafe(24)
        return self._seats.setdefault(visitor, len(self._seats) + 1)

    def _command_for(self, request: web.Request) -> str:
        return f"{self.command} {self._seat_of(request)}"

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """The session of a seat; one that is open in another window ends first."""
        command = self._command_for(request)
        for websocket, other in list(self._sockets.items()):
            if other == command:
                await websocket.close()
        async with self._locks[self._seat_of(request)]:
            return await super().handle_websocket(request)

    async def _with_table(self, app: web.Application) -> AsyncIterator[None]:
        """Keep the table up to date while the server runs."""
        table = ClassTable(self._classroom)

        async def look() -> None:
            while True:
                await asyncio.sleep(LOOK_S)
                table.look()

        looking = asyncio.create_task(look())
        yield
        looking.cancel()
        table.close()


class ClassTable:
    """The table of a class in its file and, where there is a terminal, on stderr."""

    def __init__(self, classroom: Classroom) -> None:
        self._classroom = classroom
        self._text = ""
        self._live: Live | None = None
        """The table in the terminal, once there is one."""

    @property
    def text(self) -> str:
        """What is known now, or why it cannot be read."""
        try:
            lines = class_lines(self._classroom.record, self._classroom.matches)
        except LlamaGymError as error:
            return literal(str(error))
        return literal("\n".join(line.text.rstrip() for line in lines))

    def look(self) -> None:
        """Read the class, and show it where it has changed."""
        text = self.text
        if text == self._text:
            return
        self._text = text
        with suppress(OSError):  # what was played is on the disk all the same
            replace_file(self._classroom.folder / TABLE_FILE, f"{text}\n".encode())
        if not sys.stderr.isatty():
            return
        if self._live is None:
            self._live = Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(text), refresh=True)

    def close(self) -> None:
        """Take the table from the terminal, and look a last time."""
        if self._live is not None:
            self._live.stop()
        self.look()


def serve(record: ClassRecord, *, host: str, port: int) -> None:
    """Serve a class until ctrl+c, and print its table then.

    Raises:
        LlamaGymError: its folder cannot be written.
        UsageError: the address cannot be listened on.
    """
    agent = record.config.agent
    folder = new_run_dir(agent_name(agent), parent=data_dir() / "classes")
    classroom = Classroom.begun(folder, record)
    server = ClassServer(classroom, host=host, port=port)
    echo(
        f"A class of {record.seats}: what is played is in {classroom.folder}, {TABLE_FILE} there is how it stands.",
        to=sys.stderr,
    )
    run(server, f"seat {absolute_spec(agent)}")
    echo(ClassTable(classroom).text, lines=True)
