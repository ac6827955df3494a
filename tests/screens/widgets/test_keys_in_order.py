"""A text field holds the text that was typed, however much the app has to do."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.keys import key_to_character
from textual.widgets import Input, TextArea

from llamagym_tui.screens.widgets.fields import DraftArea, SentenceInput
from tests.screens.steps import comes_to_rest


class Fields(App[None]):
    """A field of each kind, as deep in containers as in a dialog; `submitted` has what enter took of the line."""

    submitted = ""

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical():
            yield SentenceInput()
            yield DraftArea()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self.submitted = message.value


def text_in(field: Input | TextArea) -> str:
    return field.value if isinstance(field, Input) else field.text


@pytest.mark.parametrize("kind", [SentenceInput, DraftArea])
@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("a b backspace c", "ac"),
        ("a b ctrl+u c backspace d e left backspace f", "fe"),
    ],
)
async def test_keys_take_effect_in_the_order_in_which_they_were_pressed(
    kind: type[Input] | type[TextArea], keys: str, text: str
):
    async with Fields().run_test() as pilot:
        field = pilot.app.query_one(kind)
        field.focus()
        await comes_to_rest(pilot)
        for key in keys.split():
            pilot.app.post_message(Key(key, key_to_character(key)))
        await comes_to_rest(pilot)
        assert text_in(field) == text


async def test_enter_takes_the_line_as_it_was_then():
    app = Fields()
    async with app.run_test() as pilot:
        app.query_one(SentenceInput).focus()
        await comes_to_rest(pilot)
        for key in ("a", "b", "backspace", "enter", "c"):
            app.post_message(Key(key, key_to_character(key)))
        await comes_to_rest(pilot)
        assert app.submitted == "a"
