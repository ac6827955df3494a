"""`serve --seats`: a class in browsers. Whoever opens the link first gets a seat, and keeps it by a cookie.

The folder of the class has what was played, whatever becomes of the server, and who has which seat by which link: a
class that is served again goes on. Its table stands in the terminal while the
class plays, in ``table.txt``, and on stdout at the end.
"""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.text import Text

from llamagym_tui.app.trainer_client import own_python
from llamagym_tui.cli.serve import Server, run
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.protocol.literal import echo, literal
from llamagym_tui.run_store import new_run_dir
from llamagym_tui.screens.play.classroom import TABLE_FILE, ClassRecord, Classroom, class_lines
from llamagym_tui.setup.catalog import absolute_spec, agent_name
from llamagym_tui.setup.trust import require_trusted
from llamagym_tui.user_files import data_dir, file_content, replace_file

VISITORS_FILE = "visitors.json"
"""The link and the cookies of a class; only its owner may read it."""
LOOK_S = 1.0
"""Seconds between two looks at what the class has played."""
COOKIE = "visitor"


class Visitors(Struct, frozen=True):
    """What ``visitors.json`` holds."""

    token: str
    """Of the link."""
    seats: dict[str, int]
    """The seat of each visitor, by cookie."""


class ClassServer(Server):
    def __init__(self, classroom: Classroom, *, host: str, port: int) -> None:
        """Make a server that listens nowhere yet."""
        seats = classroom.record.seats
        command = [*own_python("llamagym_tui"), "seat", str(classroom.folder)]
        super().__init__(command, host=host, port=port, sessions=seats)
        self._classroom = classroom
        self._seats: dict[str, int] = {}
        """The seat of each visitor, by cookie."""
        self._visitors_path = classroom.folder / VISITORS_FILE
        if self._visitors_path.exists():
            known = visitors_of(self._visitors_path)
            self.token = known.token
            self._seats |= known.seats
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
        if visitor not in self._seats:
            self._seats[visitor] = len(self._seats) + 1
            known = msgspec.json.encode(Visitors(self.token, self._seats))
            with suppress(OSError):  # only a class that is served again would miss it
                replace_file(self._visitors_path, known)
        return self._seats[visitor]

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


def visitors_of(path: Path) -> Visitors:
    """Who has which seat; raises UsageError if that cannot be read."""
    try:
        return msgspec.json.decode(file_content(path), type=Visitors)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} does not say who has which seat ({error}); without that file all choose seats anew."
        ) from error


def begun(record: ClassRecord) -> Classroom:
    """A new class in a folder of its own; raises LlamaGymError if that cannot be written."""
    folder = new_run_dir(agent_name(record.config.agent), parent=data_dir() / "classes")
    return Classroom.begun(folder, record)


def serve(classroom: Classroom, *, host: str, port: int) -> None:
    """Serve a class until ctrl+c, and print its table then; one that has begun goes on, by the same link.

    Raises:
        LlamaGymError: its agent's code is not trusted.
        UsageError: the address cannot be listened on, or who has which seat cannot be read.
    """
    record = classroom.record
    require_trusted(record.config.agent)
    server = ClassServer(classroom, host=host, port=port)
    echo(
        f"A class of {record.seats}: what is played is in {classroom.folder}, {TABLE_FILE} there is how it stands.",
        to=sys.stderr,
    )
    run(server, f"seat {absolute_spec(record.config.agent)}")
    echo(ClassTable(classroom).text, lines=True)
    echo(f"`llamagym-tui serve {classroom.folder}` goes on with this class.", to=sys.stderr)
