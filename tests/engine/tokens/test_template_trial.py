"""Chat templates that do not end, or end as nothing usable: one sentence, soon."""

from __future__ import annotations

import pytest

from llamagym_tui.engine.tokens.tokenization import PLAIN_TEMPLATE, ChatTokenizer
from llamagym_tui.errors import ModelLoadError
from tests.engine.small_tokenizers import qwen_like

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    LOOP: "does not end",
    "{% if messages | length > 6 %}" + LOOP + "{% endif %}" + PLAIN_TEMPLATE: "does not end",
    "{% if tools %}" + LOOP + "{% endif %}" + PLAIN_TEMPLATE: "does not end",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}": r"not end|memory",
    "{{ 'a' * 10000000000 }}": "too much memory",
    "{{ 'a' * 2000000 }}": "too long",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}": "calls itself endlessly",
    "{% for": "cannot be used",
    "{{ raise_exception('never') }}": "cannot be used",
}


def with_template(template: str):
    tokenizer = qwen_like()
    tokenizer.chat_template = template
    return tokenizer


def test_a_template_that_loops_is_refused_in_one_sentence():
    with pytest.raises(
        ModelLoadError, match=r"^The model's chat template cannot be used \(it does not end\): take"
    ):
        ChatTokenizer(with_template(LOOP))


@pytest.mark.slow
@pytest.mark.parametrize(("template", "fault"), HOSTILE.items())
def test_hostile_templates_are_refused(template, fault):
    with pytest.raises(ModelLoadError, match=fault):
        ChatTokenizer(with_template(template))


def test_templates_of_ours_are_not_tried_out_and_others_once(monkeypatch, tokenizer):
    commands = []
    monkeypatch.setattr(
        "subprocess.run",
        lambda command, **rest: commands.append(command) or type("Done", (), {"returncode": 0}),
    )
    ChatTokenizer(tokenizer)
    assert commands == []
    for _ in range(2):
        ChatTokenizer(with_template(PLAIN_TEMPLATE + " "))
    assert len(commands) == 1
