"""A template that asks for the date gets that of the run's first day, also on the day after."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import trl

from llamagym_tui.engine.learning.checkpoint import CHAT_TEMPLATE, keep_template
from llamagym_tui.engine.model.loading import bind_template_arguments
from llamagym_tui.engine.tokens import tokenization
from llamagym_tui.engine.tokens.template_date import with_fixed_date
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.game.chat import user
from llamagym_tui.runs.run_folder import MODEL_DIR
from llamagym_tui.settings import RunConfig
from llamagym_tui.trainer import builders
from tests.engine.small_tokenizers import qwen_like

LLAMA_3_2 = (Path(trl.__file__).parent / "chat_templates" / "llama3_2.jinja").read_text("utf-8")
INDIRECT = (
    "{% set form = '%Y-%m-%d' %}{{ strftime_now(form) }}{% for m in messages %}<|im_start|>"
    "{{ m['content'] }}<|im_end|>{% endfor %}"
)


def chat_on(
    day: int, monkeypatch: pytest.MonkeyPatch, template: str, saved: Path | None = None
) -> ChatTokenizer:
    """A template's chats on a day of July 2030, in a run that has saved its own."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2030, 7, day)

    monkeypatch.setattr(tokenization, "datetime", Clock)
    tokenizer = qwen_like()
    tokenizer.chat_template = template
    if saved:
        keep_template(tokenizer, saved)
    return ChatTokenizer(tokenizer)


@pytest.mark.parametrize(
    ("template", "date"),
    [(LLAMA_3_2, "Today Date: 03 Jul 2030"), (INDIRECT, "2030-07-03")],
    ids=["as Llama 3.2", "by a variable"],
)
def test_a_run_that_is_resumed_the_day_after_writes_the_date_of_the_first(
    monkeypatch, tmp_path, template, date
):
    first = chat_on(3, monkeypatch, template)
    assert date in first.rendered([user("a")])
    first.tokenizer.save_pretrained(tmp_path / MODEL_DIR)
    again = chat_on(4, monkeypatch, template, tmp_path)
    assert again.rendered([user("a")]) == first.rendered([user("a")])
    played = chat_on(4, monkeypatch, first.tokenizer.chat_template)  # evaluated, or exported
    assert played.tokenizer.chat_template == first.tokenizer.chat_template


def test_a_resumed_run_is_built_with_the_template_of_its_checkpoint(monkeypatch, tmp_path):
    (tmp_path / MODEL_DIR).mkdir()
    (tmp_path / MODEL_DIR / CHAT_TEMPLATE).write_text("as it was")
    tokenizer = qwen_like()
    tokenizer.chat_template = None
    loaded = SimpleNamespace(tokenizer=tokenizer)
    monkeypatch.setattr(builders, "load_model_and_tokenizer", lambda *_, **__: loaded)
    for resume, template in ((False, None), (True, "as it was")):
        config = RunConfig(agent="blackjack", run_dir=str(tmp_path), resume=resume)
        assert builders.Builders(config).model().tokenizer.chat_template == template


def test_a_fixed_date_leaves_arguments_and_the_template_to_be_told():
    tokenizer = qwen_like()
    tokenizer.chat_template = LLAMA_3_2
    bind_template_arguments(tokenizer, {"thorough": True})
    bound = tokenizer.chat_template
    tokenizer.chat_template = with_fixed_date(bound, datetime(2030, 7, 3))
    once = tokenizer.chat_template
    bind_template_arguments(tokenizer, {"thorough": True})
    assert tokenizer.chat_template == once != bound
