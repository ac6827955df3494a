"""A list of choices by their names, which goes on while what it lists changes."""

from collections.abc import Collection, Mapping

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option


class Choices(OptionList):
    def show(self, lines: Mapping[str, Content], chosen: str, titles: Collection[str] = ()) -> None:
        """List lines by their names. The cursor stays while the names do, and else goes to the chosen one.

        Args:
            titles: names that cannot be chosen.
        """
        if [option.id for option in self.options] != list(lines):
            self.set_options([Option("", id=name, disabled=name in titles) for name in lines])
            self.highlighted = self.get_option_index(chosen) if chosen in lines else None
        for name, line in lines.items():
            self.replace_option_prompt(name, line)
