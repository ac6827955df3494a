"""A run with an adapter on the head of a deep model finds the layer to read, learns there, and keeps it."""

from __future__ import annotations

import queue
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from llamagym_tui.engine.learning import reading
from llamagym_tui.engine.learning.read_depth import can_look
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol import events
from llamagym_tui.runs.run_store import RunStore, read_config
from llamagym_tui.settings import GenerationConfig, LoraConfig
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.session import Session

LAYERS = 12
REPLIES = ("stick", "take one more card")
"""Of one token and of several."""


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of twelve layers of random weights, with the vocabulary of the bundled one."""
    folder = tmp_path_factory.mktemp("deep")
    tokenizer = load_model_and_tokenizer("bundled").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _policy(model: str) -> Policy:
    """With an adapter on the head alone, a fresh one if the folder has none."""
    is_whole = not (Path(model) / "adapter_config.json").exists()
    fresh = {"full_finetuning": False, "lora": LoraConfig(layers="head")} if is_whole else {}
    loaded = load_model_and_tokenizer(model, "cpu", **fresh)
    return Policy(loaded.model, loaded.tokenizer, GenerationConfig(policy="score"), REPLIES)


def _shares(policy: Policy) -> list[float]:
    """Log-probabilities of the first action after ten prompts."""
    prompts = [policy.chat.opening("Play.", f"Your total: {total}.") for total in range(10)]
    shares = []
    for reply in Sampler(policy).reply(prompts, greedy=True):
        assert reply.choice is not None
        shares.append(reply.choice.logprob)
    return shares


def _session(folder: Path, **given: object) -> tuple[Session, list[events.Event]]:
    config = run_config(
        None if "resume" in given else "blackjack", {"run_dir": str(folder), "threads": 1, **given}
    )
    found: list[events.Event] = []
    return Session(
        config, RunStore.create(config), queue.SimpleQueue(), sinks=[found.append]
    ), found


def test_replies_begin_equally_likely_whatever_their_length(deep: str) -> None:
    policy = _policy(deep)

    policy.read_from(5)

    assert _shares(policy) == pytest.approx([-0.6931472] * 10)
    assert (
        len(policy.model.causal_lm.model.layers)
        == policy.model.causal_lm.config.num_hidden_layers
        == 5
    )


def test_a_saved_and_a_merged_model_of_first_layers_play_the_same(
    deep: str, tmp_path: Path
) -> None:
    policy = _policy(deep)
    policy.read_from(5)
    narrow = policy.narrow
    assert narrow is not None
    with torch.no_grad():
        narrow.down.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
        generator = torch.Generator().manual_seed(2)
        narrow.up[narrow.ids] = 0.1 * torch.randn(
            len(narrow.ids), len(narrow.down), generator=generator
        )
    shares = _shares(policy)
    assert max(shares) - min(shares) > 0.01

    policy.save_pretrained(tmp_path / "adapter")
    again = _policy(str(tmp_path / "adapter"))
    merged = again.model.merged()
    merged.save_pretrained(tmp_path / "merged")

    assert again.model.read_depth == 5
    assert _shares(_policy(str(tmp_path / "adapter"))) == pytest.approx(shares, abs=1e-5)
    whole = LlamaForCausalLM.from_pretrained(tmp_path / "merged")
    assert whole.config.num_hidden_layers == 5
    assert not whole.config.tie_word_embeddings
    ids = torch.tensor([[5, 6, 7]])
    assert torch.allclose(whole(ids).logits, merged(ids).logits, atol=1e-5)
    policy.chat.tokenizer.save_pretrained(tmp_path / "merged")
    loaded = load_model_and_tokenizer(str(tmp_path / "merged"), "cpu")
    assert loaded.model.read_depth == 5, "replies of other lengths are compared as before"


def test_at_random_each_action_is_as_likely_and_no_prompt_is_read(deep: str) -> None:
    policy = _policy(deep)
    policy.plays_at_random = True
    policy.on_reading = lambda done, total: pytest.fail("a prompt was read")
    prompts = [policy.chat.opening("Play.", "Go.")] * 400

    choices = [reply.choice for reply in Sampler(policy).reply(prompts)]

    assert all(choice and choice.logprob == pytest.approx(-0.6931472) for choice in choices)
    assert 150 < sum(choice.chosen for choice in choices if choice) < 250


def test_a_run_finds_its_depth_before_its_first_update_and_a_resumed_one_keeps_it(
    deep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FASTER", 0.0)  # whatever this processor does faster
    session, seen = _session(tmp_path, model=deep, episodes=1500)
    assert session.run() == "stopped", session.error

    kinds = [type(event) for event in seen]
    assert kinds.index(events.DepthMeasured) < kinds.index(events.UpdateFinished)
    assert kinds.count(events.DepthMeasured) == 1
    measured = next(event for event in seen if isinstance(event, events.DepthMeasured))
    assert measured.layers == [5, 6, 7, 8, 10, 12]
    kept = read_config(tmp_path).read_depth
    assert kept == (measured.read if measured.read < LAYERS else "all")
    assert read_config(tmp_path).reading == "bfloat16"
    assert session.policy.model.backbone.rounded is not None
    update = next(event for event in seen if isinstance(event, events.UpdateFinished))
    assert update.stats.first_ratio < 1e-5

    resumed, later = _session(tmp_path, resume=True, episodes=1600)
    assert resumed.run() == "stopped", resumed.error
    assert not any(isinstance(event, events.DepthMeasured) for event in later)
    assert len(resumed.policy.model.causal_lm.model.layers) == measured.read
    assert resumed.policy.model.backbone.rounded is not None


def test_a_warm_start_finds_the_depth_from_its_demonstrations_and_its_lesson_stays(
    deep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FASTER", 0.0)
    shipped = Path(str(files("llamagym_tui.sft_data"))) / "blackjack.jsonl"
    few = tmp_path / "few.jsonl"
    few.write_text("".join(shipped.read_text(encoding="utf-8").splitlines(keepends=True)[:60]))
    given = {
        "sft_warm_start": True,
        "sft_data": str(few),
        "lora.layers": "head",
        "full_finetuning": False,
    }
    session, seen = _session(tmp_path / "run", model=deep, episodes=1, final_episodes=0, **given)
    assert session.run() == "stopped", session.error

    kinds = [type(event) for event in seen]
    assert kinds.index(events.DepthMeasured) < kinds.index(events.WarmStartFinished)
    [measured] = [event for event in seen if isinstance(event, events.DepthMeasured)]
    assert measured.values == ["demonstrated action"]
    assert not session.policy.plays_at_random
    assert read_config(tmp_path / "run").read_depth != "auto"
    mapped = [event for event in seen if isinstance(event, events.PolicyMapped)][-1]
    sticks = [share for share, _ in mapped.shares]
    assert max(sticks) - min(sticks) > 0.3


def test_prompts_are_read_in_the_type_of_the_weights_where_that_is_given(
    deep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FASTER", 0.0)
    session, _ = _session(tmp_path, model=deep, episodes=200, dtype="float32")
    assert session.run() == "stopped", session.error
    assert session.policy.model.backbone.rounded is None
    assert read_config(tmp_path).reading == "auto"
    with pytest.raises(ConfigError, match="reading=bfloat16"):
        _whole_policy(deep).read_rounded()


def test_a_given_depth_is_not_measured(deep: str, tmp_path: Path) -> None:
    session, seen = _session(tmp_path, model=deep, episodes=300, read_depth=3)
    assert session.run() == "stopped", session.error
    assert not any(isinstance(event, events.DepthMeasured) for event in seen)
    assert session.policy.model.read_depth == 3
    assert _shares_of_folder(tmp_path) is not None


def test_a_shallow_model_is_read_whole() -> None:
    assert not can_look(_policy("bundled"))


def test_more_layers_than_there_are_and_other_adapters_are_refused(deep: str) -> None:
    with pytest.raises(ConfigError, match="first 13 layers"):
        _policy(deep).read_from(13)
    with pytest.raises(ConfigError, match="read_depth"):
        _whole_policy(deep).read_from(3)


def _whole_policy(model: str) -> Policy:
    """With an adapter in all layers."""
    loaded = load_model_and_tokenizer(
        model, "cpu", full_finetuning=False, lora=LoraConfig(layers="all")
    )
    return Policy(loaded.model, loaded.tokenizer, GenerationConfig(policy="score"), REPLIES)


def _shares_of_folder(folder: Path) -> list[float]:
    """The model in a run's folder can be loaded, and plays."""
    return _shares(_policy(str(folder / "model")))


def test_a_model_of_another_family_is_read_whole(tmp_path: Path) -> None:
    tokenizer = load_model_and_tokenizer("bundled").tokenizer
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=LAYERS,
        n_head=2,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")

    session, seen = _session(
        tmp_path / "run", model=str(tmp_path / "gpt2"), episodes=30, final_episodes=0
    )

    assert session.run() == "stopped", session.error
    assert session.policy.narrow is not None
    assert not any(isinstance(event, events.DepthMeasured) for event in seen)


def test_the_state_after_a_layer_is_that_of_the_model_of_the_layers_up_to_it(deep: str) -> None:
    policy = _policy(deep)
    backbone = policy.model.backbone
    prompts = [policy.chat.opening("Play.", f"Your total: {total}.") for total in (7, 3, 5)]

    fifth, last = backbone.last_states(prompts, (5, LAYERS))

    assert torch.allclose(last, backbone.last_states(prompts)[0], atol=1e-5)
    policy.read_from(5)
    assert torch.allclose(fifth, backbone.last_states(prompts)[0], atol=1e-5)
    assert not torch.allclose(fifth, last, atol=0.1)
