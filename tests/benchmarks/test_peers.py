"""The peers' side by side: what of an episode GRPO trains on, and the table."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from transformers import AutoTokenizer

from benchmarks.peers import BUNDLED, run, subject_of, table
from benchmarks.peers_trl import PARSE_PENALTY, Episodes
from benchmarks.worlds import Records
from llamagym_tui.agents.blackjack import BlackjackAgent
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
