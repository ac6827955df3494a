"""Training the top layers alone: prompts are read once below them, and nothing else is as without that memory."""

from __future__ import annotations

import peft
import pytest
import torch
from msgspec.structs import replace
from transformers import LlamaForCausalLM

from llamagym_tui.config import GenerationConfig, LoraConfig, PPOConfig
from llamagym_tui.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from llamagym_tui.engine.learning.depth import what_is_trained
from llamagym_tui.engine.learning.learner import Learner
from llamagym_tui.engine.learning.learners import learner_for
from llamagym_tui.engine.learning.scoring import probabilities_of_actions
from llamagym_tui.engine.model import fixed_layers
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.ranks import ALONE
from llamagym_tui.engine.tokens.tokenization import Opening
from tests.engine.conftest import REPLIES, tiny_llama
from tests.engine.learning.test_head_ppo import OBSERVATIONS, play

# One minibatch, so that which rows are drawn together makes no difference.
CONFIG = PPOConfig(mini_batch_size=1000, critic_warmup_updates=0, kl_coef=0.05, update_kl=1e9)
LARGE_STEPS = replace(CONFIG, lr=0.05, lr_final=0.05)


def policy_of(tokenizer, layers: str | None = "top", kind: str = "score") -> Policy:
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    if layers is not None:
        model.adapt(LoraConfig(layers=layers, r=4))  # type: ignore[arg-type]
    generation = GenerationConfig(policy=kind, max_new_tokens=6)  # type: ignore[arg-type]
    policy = Policy(model, tokenizer, generation, REPLIES, 0)
    policy.history = 0
    return policy


def learner_of(policy: Policy, config: PPOConfig = CONFIG) -> Learner:
    return learner_for(policy, config, 0, ALONE)


def trained(policy: Policy) -> torch.Tensor:
    weights = [each for each in policy.model.parameters() if each.requires_grad]
    return torch.cat([each.detach().flatten() for each in weights])


def maps(policy: Policy) -> torch.Tensor:
    prompts = [Opening((1, 2), (5, 6, 7)), Opening((1, 2), (5, 8))]
    return torch.tensor(probabilities_of_actions(policy, prompts))


@pytest.mark.parametrize("kind", ["score", pytest.param("generate", marks=pytest.mark.slow)])
def test_rollouts_updates_and_maps_are_those_without_a_memory(tokenizer, monkeypatch, kind):
    ours = policy_of(tokenizer, kind=kind)
    torch.manual_seed(0)
    learner = learner_of(ours, LARGE_STEPS)
    assert ours.model.backbone.fixed is not None
    monkeypatch.setattr(Backbone, "remember_fixed_layers", lambda backbone: None)
    theirs = policy_of(tokenizer, kind=kind)
    plain = learner_of(theirs, LARGE_STEPS)
    assert theirs.model.backbone.fixed is None
    theirs.model.load_state_dict(ours.model.state_dict())
    began = trained(ours)
    for each in (learner, plain):
        # Adam would make whole steps of gradients that are rounding alone.
        each.optimizer = torch.optim.SGD(each.optimizer.param_groups)
    for _ in range(3):
        batch, expected = (play(each, by_observation=True) for each in (ours, theirs))
        for one, other in zip(batch, expected, strict=True):
            assert one.segments[0].ids == other.segments[0].ids
            for turn, same in zip(one.turns, other.turns, strict=True):
                assert turn.decision_logprobs == pytest.approx(same.decision_logprobs, abs=1e-5)
                assert turn.value == pytest.approx(same.value, abs=1e-5)
        figures, expected_figures = learner.update(batch), plain.update(expected)
        assert figures.kl_ref == pytest.approx(expected_figures.kl_ref, abs=1e-5)
        assert torch.allclose(trained(ours), trained(theirs), atol=1e-5)
        assert torch.allclose(maps(ours), maps(theirs), atol=1e-5)
    assert float((trained(ours) - began).abs().max()) > 1e-3


def test_in_a_run_every_token_is_read_once_below_the_top_layers(tokenizer, monkeypatch):
    policy = policy_of(tokenizer)
    learner = learner_of(policy)
    read: list[int] = []
    plain = fixed_layers.states_before

    def states_before(decoder, count, paths):
        read.append(len(paths.wanted))
        return plain(decoder, count, paths)

    monkeypatch.setattr(fixed_layers, "states_before", states_before)
    for _ in range(3):
        batch = play(policy)
        learner.update(batch)
    known = {
        (*segment.prefix, *segment.ids[: turn.start], *reply[:end])
        for each in batch
        for segment in each.segments
        for turn in segment.turns
        for reply in policy.trie.replies
        for end in range(len(reply))
    }
    tokens = {path[:end] for path in known for end in range(1, len(path) + 1)}
    assert sum(read) == len(tokens)


def test_what_was_scored_is_not_scored_again_by_the_same_policy(tokenizer):
    policy = policy_of(tokenizer)
    learner = learner_of(policy)
    sampler = Sampler(policy, len(OBSERVATIONS))
    calls: list[int] = []
    policy.model.backbone.head.register_forward_hook(lambda *_: calls.append(1))

    def shares() -> list[float]:
        episodes = [Episode(policy, "Play.") for _ in OBSERVATIONS]
        for slot, episode in enumerate(episodes):
            sampler.restart(slot, episode.observe(OBSERVATIONS[slot]).restart)
        prompts = [Episode(policy, "Play.").observe(text).ids for text in OBSERVATIONS]
        replies = sampler.reply(range(len(prompts)), prompts, greedy=True)
        return [reply.choice.logprob for reply in replies]

    first = shares()
    made = len(calls)
    assert shares() == first
    assert len(calls) == made > 0
    learner.update(play(policy))
    assert shares() != first


def test_a_resumed_run_goes_on_as_the_undisturbed_one(tokenizer, tmp_path):
    policy = policy_of(tokenizer)
    learner = learner_of(policy)
    learner.update(play(policy))
    save_checkpoint(tmp_path, policy, learner, {})
    again = policy_of(tokenizer)
    learner_again = learner_of(again)
    load_checkpoint(tmp_path, again, learner_again, dict)
    assert learner_again.state == learner.state
    for _ in range(2):
        one, other = learner.update(play(policy)), learner_again.update(play(again))
        assert one.mean_return == other.mean_return
        # Prompts are read in other batches again, so there is rounding.
        assert torch.allclose(trained(policy), trained(again), atol=1e-4)


def test_pefts_own_classes_read_and_merge_what_was_trained(tokenizer, tmp_path):
    policy = policy_of(tokenizer)
    learner_of(policy).update(play(policy))
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        expected = policy.model(ids).logits
        bare = tiny_llama(len(tokenizer))
        assert not torch.allclose(bare(ids).logits, expected, atol=1e-3)
        policy.model.save_pretrained(tmp_path / "adapter")
        theirs = peft.PeftModel.from_pretrained(bare, tmp_path / "adapter").eval()
        assert torch.allclose(theirs(ids).logits, expected, atol=1e-5)
        policy.model.merged().save_pretrained(tmp_path / "merged")
        merged = LlamaForCausalLM.from_pretrained(tmp_path / "merged").eval()
        assert torch.allclose(merged(ids).logits, expected, atol=1e-5)


def test_which_weights_are_trained_is_said_with_their_number(tokenizer):
    def said(layers: str | None) -> str:
        return what_is_trained(policy_of(tokenizer, layers))

    # A row of 4 for each of the tokens 0 and 1. Of a layer's seven matrices the inputs and outputs add up to 64 (q, o),
    # 48 (k, v) and 96 (gate, up, down), times a rank of 4.
    of_layer = 4 * (2 * 64 + 2 * 48 + 3 * 96)
    weights = sum(each.numel() for each in tiny_llama(len(tokenizer)).parameters())
    of_turns = Policy(
        policy_of(tokenizer, "head").model, tokenizer, GenerationConfig(), names_by_turn=True
    )
    assert what_is_trained(of_turns) == (
        "4 weights of an adapter on the LM head alone for each token at which replies part"
    )
    assert said("head") == "8 weights of an adapter on the LM head alone, for 2 tokens"
    assert said("top") == f"{of_layer:,} weights of an adapter in the top 1 of 2 layers"
    assert said("all") == f"{2 * of_layer:,} weights of an adapter in all 2 layers"
    assert said(None) == f"all {weights:,} weights of the model"
