"""The peers' side by side: what of an episode GRPO trains on, and the table."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.peers import BUNDLED, table
from benchmarks.worlds import Records
from llamagym_tui.agents.blackjack import BlackjackAgent


def test_table_has_medians_of_the_seeds_at_each_mark(tmp_path: Path) -> None:
    records = Records(tmp_path / "results.jsonl")
    for seed, greedy in enumerate([-0.3, -0.1, -0.2]):
        at = {"world": "blackjack", "peer": "trl", "seed": seed, "minutes": 1}
        records.add(**at, greedy=greedy, sampled=greedy - 0.1, turns=100 * seed, updates=seed)
    assert table(records, [1]).splitlines()[-1] == "| blackjack | trl | -0.200 / -0.300 | 100 | 1 |"
    assert table(records, [1, 2]).splitlines()[-1] == "| blackjack | trl | -0.200 / -0.300 |  |  |  |"


@pytest.mark.slow
def test_only_what_the_model_replied_is_trained_on() -> None:
    from transformers import AutoTokenizer

    from benchmarks.peers_trl import PARSE_PENALTY, Episodes

    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    agent: Any = BlackjackAgent()
    agent.observed = lambda seen, info: agent.format_observation(seen)
    episodes = Episodes(agent, tokenizer, max_turns=3)
    nothing, stick = (tokenizer(words + "<|end|>")["input_ids"] for words in ("hm", '{"action": 0}'))
    planned = iter([nothing, stick])

    def generate(input_ids: torch.Tensor, **options: Any) -> SimpleNamespace:
        reply = next(planned)
        logits = torch.zeros(len(reply), 1, len(tokenizer))
        return SimpleNamespace(sequences=torch.cat([input_ids, torch.tensor([reply])], 1), logits=list(logits))

    trainer: Any = SimpleNamespace(
        model=SimpleNamespace(generate=generate), accelerator=SimpleNamespace(unwrap_model=lambda model: model)
    )
    prompt = episodes.prompt(seed=3)
    played = episodes([prompt], trainer)
    between = tokenizer('<|user|>Reply with {"action": n}.<|end|><|assistant|>', add_special_tokens=False)["input_ids"]
    assert played["completion_ids"] == [[*nothing, *between, *stick]]
    assert played["env_mask"] == [[1] * len(nothing) + [0] * len(between) + [1] * len(stick)]
    assert tokenizer.decode(played["prompt_ids"][0]).endswith("<|assistant|>")
    env_reward = played["returns"][0] + PARSE_PENALTY
    assert env_reward in (-1, 0, 1)
