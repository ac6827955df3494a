"""`doctor --model`: what is shown of a model's tokens, from a folder without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig, LlamaConfig
from typer.testing import CliRunner, Result

from llamagym_tui.cli.main import app
from tests.engine.small_tokenizers import CHATML, qwen_like
from tests.engine.tokens.test_template_faults import SOUND, THOUGHTLESS


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the tokenizer and configuration of a model of a template; it has no weights."""
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "data"))
    folder = tmp_path / "model"

    def write(template: str, *, names_end: bool = True) -> str:
        tokenizer = qwen_like()
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder)
        LlamaConfig(architectures=["LlamaForCausalLM"]).save_pretrained(folder)
        if names_end:
            GenerationConfig(eos_token_id=tokenizer.eos_token_id).save_pretrained(folder)
        return str(folder)

    return write


def doctor(*words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *words])


def marked(result: Result) -> list[tuple[str, str]]:
    """The lines of tokens, without what separates these."""
    lines = result.output.partition("\n\nread      of")[0].splitlines()
    return [(line[:10].strip(), line[10:].replace("|", "")) for line in lines[1:] if line]


def test_an_episode_is_read_inserted_and_trained_as_in_a_run(model: Any) -> None:
    result = doctor("--model", model(SOUND), "frozen_lake")
    assert result.exit_code == 0
    (prompt, reply, between, observation, again) = marked(result)
    assert prompt[0] == "read"
    assert prompt[1].startswith("<im_start>system↵")
    assert prompt[1].endswith("<im_end><im_start>assistant↵")
    assert reply == ("trained", '{"action":·3}<im_end>')
    assert between == ("inserted", "<im_start>user↵")
    assert observation[0] == "read"
    assert again[0] == "trained"
    assert "The template does nothing that training has to know." in result.output


def test_a_template_that_rewrites_history_has_a_sequence_for_each_turn(model: Any) -> None:
    result = doctor("--model", model(THOUGHTLESS), "frozen_lake")
    (_, first, later, second) = marked(result)
    thoughtful = ("trained", '<think>↵Let·me·see.↵</think>↵↵{"action":·3}<im_end>')
    assert (first, second) == (thoughtful, thoughtful)
    # The first reply is read again without its thought, and is not trained there.
    assert '<im_start>assistant↵↵↵{"action":·3}<im_end><im_start>user↵' in later[1]
    assert result.output.splitlines()[-1].startswith("history: ")


def test_ends_come_from_the_configuration_where_there_is_no_other_file(model: Any) -> None:
    result = doctor("--model", model(CHATML, names_end=False))
    found = result.output.splitlines()[-2:]
    assert [line.partition(":")[0] for line in found] == ["end unknown", "no markers"]


def test_a_model_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    result = doctor("--model", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == (
        f"llamagym-tui: No model in {str(tmp_path)!r}: a folder with config.json and a tokenizer is needed.\n"
    )


@pytest.mark.parametrize("when", ["true", "m.role == 'assistant'"])
def test_a_template_that_changes_messages_is_refused_in_words_of_its_own(
    model: Any, when: str
) -> None:
    changing = CHATML.replace("m['content']", f"m.content.upper() if {when} else m.content")
    result = doctor("--model", model(changing))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "llamagym-tui: The model's chat template changes what messages say"
    )
    trimming = model(CHATML.replace("m['content']", "m.content | trim"))
    assert doctor("--model", trimming).exit_code == 0
