"""Demonstrations in the forms of other programs, worked by hand and read by TRL itself."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import export
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.chat import assistant, system, user

STICK, HIT = assistant('{"action": 0}'), assistant('{"action": 1}')
BEGUN = [system("Play."), user("Your total: 8.")]
TWO_TURNS = [*BEGUN, HIT, user("Your total: 19."), STICK]
"""The model hit at 8; at 19 a person stuck, where the model would have hit."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recorded(tmp_path / "mine.jsonl", {1: HIT["content"]})


def recorded(path: Path, replaced: dict[int, str] | msgspec.UnsetType = msgspec.UNSET) -> Path:
    demo = Demonstration.of(
        BlackjackAgent(),
        "blackjack",
        "Play.",
        [
            PlayedTurn("Your total: 8.", None, HIT["content"], 1, 0.0),
            PlayedTurn("Your total: 19.", None, STICK["content"], 0, 1.0),
        ],
        end="terminated",
        source="human" if replaced is msgspec.UNSET else "correction",
        recorded_at=datetime(2026, 1, 2, tzinfo=UTC),
        replaced_replies=replaced,
    )
    demo_files.write(path, [demo])
    return path


def lines(file: Path, form: export.Form) -> list[Any]:
    out = file.with_name(f"{form}.jsonl")
    count = export.to_lines(file, out, form)
    found = [msgspec.json.decode(line) for line in out.read_bytes().splitlines()]
    assert len(found) == count
    return found


def test_of_a_correction_only_the_persons_turn_is_exported(file: Path) -> None:
    prompt = {"prompt": TWO_TURNS[:4]}
    assert lines(file, "prompts") == [prompt]
    assert lines(file, "pairs") == [{**prompt, "completion": [STICK]}]
    assert lines(file, "dpo") == [{**prompt, "chosen": [STICK], "rejected": [HIT]}]
    assert lines(file, "kto") == [
        {**prompt, "completion": [STICK], "label": True},
        {**prompt, "completion": [HIT], "label": False},
    ]


def test_of_one_players_episode_every_turn_is_exported_and_none_is_rejected(tmp_path: Path) -> None:
    own = recorded(tmp_path / "own.jsonl")
    assert lines(own, "prompts") == [{"prompt": BEGUN}, {"prompt": TWO_TURNS[:4]}]
    assert [row["label"] for row in lines(own, "kto")] == [True, True]
    with pytest.raises(DemoFileError, match="has no replies that a person replaced"):
        lines(own, "dpo")


def test_a_reply_that_a_person_replaced_by_itself_is_no_preference(tmp_path: Path) -> None:
    same = recorded(tmp_path / "same.jsonl", {1: STICK["content"]})
    assert [row["label"] for row in lines(same, "kto")] == [True]
    with pytest.raises(DemoFileError):
        lines(same, "dpo")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dpo", "kto"])
def test_trl_trains_on_the_lines(tmp_path: Path, file: Path, form: export.Form) -> None:
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from llamagym_tui.engine.model.sources import bundled_model_path

    lines(file, form)
    rows = load_dataset(
        "json", data_files=str(tmp_path / f"{form}.jsonl"), cache_dir=str(tmp_path / "cache")
    )["train"]
    rows = rows.select([index % len(rows) for index in range(4)])
    model, tokenizer = (
        kind.from_pretrained(bundled_model_path()) for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    config, trainer = {
        "dpo": (trl.DPOConfig, trl.DPOTrainer),
        "kto": (trl.KTOConfig, trl.KTOTrainer),
    }[form]
    common = {
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "report_to": "none",
        "bf16": False,
    }
    arguments = config(
        output_dir=str(tmp_path / "out"), save_strategy="no", learning_rate=1e-3, **common
    )
    before = model.model.embed_tokens.weight.detach().clone()
    trainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer).train()
    assert not before.equal(model.model.embed_tokens.weight)


def test_the_pairs_that_are_trained_on_are_those_that_are_exported(file: Path) -> None:
    (demo,) = demo_files.read(file)
    (pair,) = demo.preferences
    words = [{key: message[key] for key in ("role", "content")} for message in pair.prompt]
    assert words == TWO_TURNS[:4]
    assert (pair.chosen, pair.rejected) == (STICK["content"], HIT["content"])


def test_a_reply_that_a_person_would_have_given_too_is_no_pair(tmp_path: Path) -> None:
    (demo,) = demo_files.read(recorded(tmp_path / "same.jsonl", {1: STICK["content"]}))
    assert demo.preferences == []
