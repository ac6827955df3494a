"""Episodes of a file as a table."""

from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.demos.rows import COLUMNS, Row
from llamagym_tui.screens.widgets.table_list import TableList

FAULTY, OTHER_PROMPT = "✗", "≠"


class EpisodeList(TableList[Row]):
    COLUMNS = COLUMNS

    def key(self, row: Row) -> bytes:
        return row.content

    def ordered(self, rows: list[Row]) -> list[Row]:
        """Lines that are no demonstration come last."""
        whole = super().ordered([row for row in rows if row.demo is not None])
        return whole + [row for row in rows if row.demo is None]

    def mark_of(self, row: Row) -> str:
        return FAULTY if row.faults else OTHER_PROMPT if row.other_prompt else ""

    def line(self, row: Row, width: int) -> Content:
        if row.demo is None:
            why = one_line(row.faults[0] if row.faults else "no demonstration")
            return Content.styled(f"{FAULTY} {row.line:<5,}  {why}", "$text-error")
        line = super().line(row, width)
        return line.stylize("$text-error") if row.faults else line
