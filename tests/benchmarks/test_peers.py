"""The peers' side by side: what of an episode GRPO trains on, and the table."""

import importlib
import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import own_environment
from benchmarks.peers import BUNDLED, agilerl_python, table, texts
from benchmarks.worlds import Records
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent


def test_table_has_medians_of_the_seeds_at_each_mark(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl")
    for seed, greedy in enumerate([-0.3, -0.1, -0.2]):
        at = {"world": "blackjack", "peer": "trl", "seed": seed, "minutes": 1}
        found = {"greedy": greedy, "sampled": greedy - 0.1, "turns": 100 * seed, "updates": seed}
        records.add(at | found)
    assert table(records, [1]).splitlines()[-1] == "| blackjack | trl | -0.200 / -0.300 | 100 | 1 |"
    assert (
        table(records, [1, 2]).splitlines()[-1] == "| blackjack | trl | -0.200 / -0.300 |  |  |  |"
    )


@pytest.fixture
def agilerl_side(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """AgileRL's side of the table, without AgileRL, which is in no environment of this project."""
    stands_for = SimpleNamespace(
        LLMPPO=None, base=None, RolloutHarness=None, train_llm_rollout=None
    )
    for name in ("", ".algorithms", ".algorithms.core", ".llm_envs", ".training", ".training.llm"):
        monkeypatch.setitem(sys.modules, f"agilerl{name}", stands_for)
    monkeypatch.setitem(sys.modules, "agilerl.training.llm.rollout", stands_for)
    return importlib.reload(importlib.import_module("benchmarks.peers_agilerl"))


def test_agilerl_plays_our_texts_and_a_reply_without_an_action_is_no_step(
    agilerl_side: ModuleType,
) -> None:
    world = agilerl_side.TextWorld(
        "FrozenLake-v1", {"is_slippery": False}, texts("frozen_lake")["observations"]
    )
    seen, _ = world.reset(seed=1)
    assert seen == FrozenLakeAgent().format_observation(0)
    for nothing in ("down", '{"action": 7}'):
        assert world.step(nothing) == ('Reply with {"action": n}.', -0.5, False, False, {})
    steps = [world.step(f'{{"action": {number}}}') for number in (1, 1, 2, 1, 2, 2)]
    assert [step[1] for step in steps] == [0, 0, 0, 0, 0, 1]
    assert steps[0][0] == FrozenLakeAgent().format_observation(4)
    assert [step[2] for step in steps] == [False] * 5 + [True]


def test_agilerl_is_saved_at_its_marks_whose_time_leaves_out_the_saving(
    agilerl_side: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, learned, saved = [0.0], list[Any](), list[str]()

    def learn(experiences: Any, turn_ids: torch.Tensor) -> None:
        learned.append(experiences)
        now[0] += 40

    def save(agent: Any, folder: Path) -> None:
        saved.append(folder.name)
        now[0] += 1000

    monkeypatch.setattr(agilerl_side, "time", SimpleNamespace(process_time=lambda: now[0]))
    monkeypatch.setattr(agilerl_side, "save", save)
    answers = io.StringIO()
    marks = agilerl_side.Marks(SimpleNamespace(learn=learn), [1, 3], tmp_path, answers)
    turn_ids = torch.tensor([[-1, 0, 0, -1, 1], [-1, 0, -1, -1, -1]])
    for number in range(4):
        marks(number, turn_ids)
    with pytest.raises(SystemExit):
        marks(4, turn_ids)
    assert learned == [0, 1, 2, 3, 4]
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert saved == ["1", "3"]
    assert [(each["updates"], each["turns"], each["episodes"]) for each in found] == [
        (2, 6, 4),
        (5, 15, 10),
    ]


def test_agilerl_environment_that_exists_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGILERL_ENVIRONMENT", str(tmp_path))
    monkeypatch.setattr(own_environment, "interpreter", lambda *given: Path("made"))
    assert agilerl_python() == tmp_path / "bin/python"
    monkeypatch.delenv("AGILERL_ENVIRONMENT")
    assert agilerl_python() == Path("made")


@pytest.mark.slow
def test_only_what_the_model_replied_is_trained_on() -> None:
    from transformers import AutoTokenizer

    from benchmarks.peers_trl import PARSE_PENALTY, Episodes

    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    episodes = Episodes(BlackjackAgent(), tokenizer, max_turns=3)
    nothing, stick = (
        tokenizer(words + "<|end|>")["input_ids"] for words in ("hm", '{"action": 0}')
    )
    planned = iter([nothing, stick])

    def generate(input_ids: torch.Tensor, **options: Any) -> SimpleNamespace:
        reply = next(planned)
        logits = torch.zeros(len(reply), 1, len(tokenizer))
        return SimpleNamespace(
            sequences=torch.cat([input_ids, torch.tensor([reply])], 1), logits=list(logits)
        )

    trainer: Any = SimpleNamespace(
        model=SimpleNamespace(generate=generate),
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
    )
    prompt = episodes.prompt(seed=3)
    played = episodes([prompt], trainer)
    between = tokenizer(
        '<|user|>Reply with {"action": n}.<|end|><|assistant|>', add_special_tokens=False
    )["input_ids"]
    assert played["completion_ids"] == [[*nothing, *between, *stick]]
    assert played["env_mask"] == [[1] * len(nothing) + [0] * len(between) + [1] * len(stick)]
    assert tokenizer.decode(played["prompt_ids"][0]).endswith("<|assistant|>")
    env_reward = played["returns"][0] + PARSE_PENALTY
    assert env_reward in (-1, 0, 1)
