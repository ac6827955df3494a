"""The peers' side by side: what of an episode GRPO trains on, and the table."""

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from transformers import AutoTokenizer

from benchmarks import own_environment
from benchmarks.llamagym_environment import CHATML_TEMPLATE
from benchmarks.peers import BUNDLED, agilerl_python, run, subject_of, table, texts
from benchmarks.peers_trl import PARSE_PENALTY, Episodes
from benchmarks.worlds import Records
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.game.environment import agent_env


def test_table_has_medians_of_the_seeds_at_each_mark(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl")
    for seed, greedy in enumerate([-0.3, -0.1, -0.2]):
        at = {"world": "blackjack", "peer": "trl", "seed": seed, "minutes": 1}
        found = {"greedy": greedy, "sampled": greedy - 0.1, "turns": 100 * seed, "updates": seed}
        records.add(at | found | {"unread": 0.25 * seed})
    lines = table(records, [1]).splitlines()
    assert "| 1 min, greedy / sampled |" in lines[0]
    assert lines[-1] == "| blackjack | trl | -0.200 / -0.300 | 25.0% | 100 | 1 |"
    lines = table(records, [1, 2]).splitlines()
    assert lines[-1] == "| blackjack | trl | -0.200 / -0.300 |  |  |  |  |"


def test_results_of_two_models_do_not_mix(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl")
    where = {"world": "blackjack", "peer": "ours", "seed": 1, "minutes": 1.0}
    records.add(where | {"model": "smollm2"})
    with pytest.raises(typer.BadParameter, match="results of smollm2"):
        run(records, subject_of("bundled"), "blackjack", "ours", 1, [1], tmp_path)


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


def test_agilerl_plays_our_texts_and_the_fallback_for_a_reply_without_an_action(
    agilerl_side: ModuleType,
) -> None:
    world = agilerl_side.TextWorld(
        "FrozenLake-v1", {"is_slippery": False}, texts("frozen_lake")["observations"]
    )
    seen, _ = world.reset(seed=1)
    assert seen == FrozenLakeAgent().format_observation(0)
    left = FrozenLakeAgent().format_observation(0)
    for nothing in ("down", '{"action": 7}'):
        assert world.step(nothing) == (left, -0.5, False, False, {})
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


def chatml_tokenizer() -> Any:
    """The bundled model's, with ChatML's tokens and template."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = CHATML
    return tokenizer


CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES: dict[str, Callable[[], Any]] = {
    "bundled": lambda: AutoTokenizer.from_pretrained(BUNDLED),
    "chatml": chatml_tokenizer,
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_grpo_trains_on_what_the_model_replied_in_the_conversation_that_its_template_writes(
    template: str,
) -> None:
    tokenizer = TEMPLATES[template]()
    episodes = Episodes(BlackjackAgent(), tokenizer, max_turns=3, batch=8)
    hit, cut_off = (
        tokenizer(words, add_special_tokens=False)["input_ids"] for words in ('{"action": 1}', "hm")
    )
    ended = [*hit, tokenizer.eos_token_id]
    planned = iter([ended, cut_off])

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
    env = agent_env(BlackjackAgent())
    env.reset(seed=3)
    seen, *_ = env.step(1)
    _, stick, *_ = env.step(0)
    prompt = episodes.prompt(seed=3)
    played = episodes([prompt], trainer)
    later = [
        {"role": "assistant", "content": '{"action": 1}'},
        {"role": "user", "content": BlackjackAgent().format_observation(seen)},
    ]
    whole = tokenizer.apply_chat_template([*prompt, *later], add_generation_prompt=True)
    assert played["prompt_ids"][0] + played["completion_ids"][0] == whole["input_ids"] + cut_off
    (mask,) = played["env_mask"]
    trained = [id_ for id_, is_own in zip(played["completion_ids"][0], mask, strict=True) if is_own]
    assert trained == ended + cut_off, "nothing of the environment's"
    assert played["returns"] == [float(stick) - PARSE_PENALTY], "the fallback sticks, and costs"
    after = episodes._between(prompt, cut_off, "more")
    assert after[0] == tokenizer.eos_token_id, "a reply that was cut off is ended"


def test_llamagym_trains_on_the_conversation_of_chatml_cut_where_a_reply_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stands_for = SimpleNamespace(Agent=object, AutoModelForCausalLMWithValueHead=None)
    for name in ("llamagym", "trl"):
        monkeypatch.setitem(sys.modules, name, stands_for)
    side = importlib.reload(importlib.import_module("benchmarks.llamagym_side"))
    today = chatml_tokenizer()
    today.save_pretrained(tmp_path)
    tokenizer = side.ChatMLTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = CHATML_TEMPLATE
    messages = [
        {"role": role, "content": words}
        for role, words in (("system", "Play."), ("user", "10?"), ("assistant", "hm"))
    ]
    messages += [{"role": "user", "content": "20?"}]
    asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = today.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert tokenizer(asked)["input_ids"] == ids
    reply = today('{"action": 0}<|im_end|>')["input_ids"]
    (words,) = tokenizer.batch_decode([ids + reply], skip_special_tokens=True)
    assert words.split("[/INST]")[-1].strip() == '{"action": 0}'
    messages += [{"role": "assistant", "content": '{"action": 0}'}]
    query, _, answer = tokenizer.apply_chat_template(messages, tokenize=False).rpartition(
        "[/INST] "
    )
    assert tokenizer(f"{query}[/INST] ")["input_ids"] == ids
    assert tokenizer(answer)["input_ids"] == reply
