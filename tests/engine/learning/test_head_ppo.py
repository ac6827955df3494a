"""PPO on a fixed trunk: what it changes and what it leaves, and that what is remembered changes nothing."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from llamagym_tui.engine.learning.directions import Read, measure
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import GenerationConfig, LoraConfig, PPOConfig
from tests.engine.conftest import REPLIES, tiny_llama

CONFIG = PPOConfig(kl_coef=0.0, kl_coef_final=0.0, entropy_coef=0.01, entropy_coef_final=0.01)
OBSERVATIONS = [f"You see {number}." for number in range(20)]


def head_policy(tokenizer, seed: int = 0, r: int = 8) -> Policy:
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    model.adapt(LoraConfig(layers="head", r=r))
    policy = Policy(
        model, tokenizer, GenerationConfig(policy="score", max_new_tokens=6), REPLIES, seed
    )
    policy.history = 0
    return policy


def reply_of(name: str) -> str:
    return json.dumps({"action": int(name)})


def head_learner(policy: Policy) -> PPO:
    return PPO(policy, CONFIG)


def play(policy: Policy, episodes: int = 60, *, by_observation: bool = False) -> list[Trajectory]:
    """Episodes of one turn, whose reward is 1 for the second action on even observations, else for the first.

    `by_observation`: the reward is 1 on odd observations, whatever is done.
    """
    found = []
    for first in range(0, episodes, len(OBSERVATIONS)):
        numbers = range(first, min(first + len(OBSERVATIONS), episodes))
        begun, replies = replied(policy, [OBSERVATIONS[each - first] for each in numbers])
        for number, episode, reply in zip(numbers, begun, replies, strict=True):
            text = episode.reply(reply)
            is_right = text == REPLIES[1 - number % 2]
            reward = number % 2 if by_observation else is_right
            episode.reward(float(reward), parse_failed=text not in REPLIES)
            found.append(episode.finish("terminated"))
    return found


def replied(policy: Policy, observations: list[str]) -> tuple[list[Episode], list[Reply]]:
    """Episodes that begin with these observations, and a reply to each, sampled at once."""
    begun = [Episode(policy, "Play.") for _ in observations]
    prompts = [episode.observe(text) for episode, text in zip(begun, observations, strict=True)]
    return begun, Sampler(policy).reply(prompts)


@pytest.fixture
def policy(tokenizer) -> Policy:
    return head_policy(tokenizer)


def test_only_the_rows_of_tokens_at_which_replies_part_change(tokenizer) -> None:
    policy = head_policy(tokenizer)
    learner = head_learner(policy)
    before = {name: value.clone() for name, value in policy.model.named_parameters()}
    learner.update(play(policy))
    assert policy.narrow is not None
    changed = {
        name
        for name, value in policy.model.named_parameters()
        if not torch.equal(value, before[name])
    }
    assert len(changed) == 2  # A, once, and B
    assert all("lora_" in name for name in changed)
    rows = policy.narrow.up.detach().abs().sum(-1).nonzero().squeeze(-1).tolist()
    parting = [policy.chat.reply_ids(reply)[1] for reply in REPLIES]
    assert rows == sorted(parting)


def test_directions_that_later_batches_show_are_taken_up_and_the_policy_stays(tokenizer) -> None:
    policy = head_policy(tokenizer)
    learner = head_learner(policy)
    narrow = learner.steps.narrow
    # three observations differ in two directions, behind the one that is the same for all
    learner.update(play(policy, 3))
    first = narrow.down.detach().clone()
    assert first.any(1).tolist() == [True] * 3 + [False] * 5
    before = (narrow.up @ narrow.down).detach()
    rows = batch_rows(play(policy))
    read = [Read(part.trees[0], 0, encoded) for part, encoded in learner.steps.encoded(rows)]
    measure(narrow.down, read)
    assert torch.equal(narrow.down[:3], first[:3])
    assert narrow.down.any(1).sum() > 4
    assert torch.equal((narrow.up @ narrow.down).detach(), before)
    # the new ones see nothing that the first ones see
    known, new = narrow.down[:3], narrow.down[3:]
    known, new = (each / each.norm(dim=1, keepdim=True).clamp(min=1e-9) for each in (known, new))
    assert (known @ new.T).abs().max() < 1e-4


def test_directions_are_found_where_every_observation_has_actions_of_its_own(tokenizer) -> None:
    names = [str(number) for number in range(7)]
    pairs = list(itertools.combinations(names, 2))[: len(OBSERVATIONS)]
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    model.adapt(LoraConfig(layers="head", r=8))
    settings = GenerationConfig(policy="score", max_new_tokens=6)
    replies = [reply_of(name) for name in names]
    policy = Policy(model, tokenizer, settings, replies, replies_of=reply_of, names_by_turn=True)
    policy.history = 0
    learner = head_learner(policy)
    sampler = Sampler(policy)
    batch = []
    for observation, pair in zip(OBSERVATIONS, pairs, strict=True):
        episode = Episode(policy, "Play.")
        prompt = episode.observe(observation, pair)
        (reply,) = sampler.reply([prompt], [policy.trie_of(pair)])
        episode.reply(reply)
        episode.reward(float(observation > "You see 2"), parse_failed=False)
        batch.append(episode.finish("terminated"))
    learner.update(batch)
    # each set is a part of its own, of one state: its mean is that state, and left out, nothing would be left
    assert learner.steps.narrow.down.any(1).all()
    assert learner.steps.narrow.up.any()


def test_the_first_ratio_is_one_at_every_update(policy: Policy) -> None:
    learner = head_learner(policy)
    for _ in range(3):
        assert learner.update(play(policy)).first_ratio < 1e-4


def test_the_trunk_is_read_once_for_each_prompt(policy: Policy, monkeypatch) -> None:
    learner = head_learner(policy)
    learner.update(play(policy))
    backbone = policy.model.backbone

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a prompt was read again")

    monkeypatch.setattr(backbone, "encode_tree", refuse)
    learner.update(play(policy))


@pytest.mark.parametrize("name", ["ppo", pytest.param("gigpo", marks=pytest.mark.slow)])
def test_it_learns_which_reply_each_observation_wants(tokenizer, monkeypatch, name) -> None:
    # eight directions in which the observations differ, and the one that is the same for all
    policy = head_policy(tokenizer, r=9)
    learner = PPO(policy, replace(CONFIG, learner=name))
    if name != "ppo":
        monkeypatch.setattr(policy.model.v_head, "forward", None)
        monkeypatch.setattr(policy.model.v_head, "fit", None)
    returns = [learner.update(play(policy, 200)).mean_return for _ in range(25)]
    assert returns[0] < 0.65
    assert sum(returns[-5:]) / 5 > 0.8


def test_its_critic_foresees_returns(tokenizer) -> None:
    policy = head_policy(tokenizer)
    learner = head_learner(policy)
    first = learner.update(play(policy, 400, by_observation=True))
    assert first.explained_variance == 0.0
    later = [learner.update(play(policy, 400, by_observation=True)) for _ in range(3)]
    assert later[-1].explained_variance > 0.5


@pytest.mark.parametrize(("made", "episodes"), [(1, 60), (3, 60), (1, 3)])
def test_a_run_goes_on_from_a_checkpoint_as_if_undisturbed(
    tokenizer, tmp_path, made, episodes
) -> None:
    # Three episodes show few directions: those of later batches come beside them.
    policy = head_policy(tokenizer)
    learner = head_learner(policy)
    for _ in range(made):
        learner.update(play(policy, episodes))
    save_checkpoint(tmp_path, policy, learner, {})
    again = head_policy(tokenizer, seed=5)
    learner_again = head_learner(again)
    load_checkpoint(tmp_path, again, learner_again, dict)
    assert learner_again.state == learner.state
    assert policy.narrow is not None
    assert again.narrow is not None
    for _ in range(2):
        # Prompts are read in other batches again, so there is rounding.
        one, other = learner.update(play(policy)), learner_again.update(play(again))
        assert (one.mean_return, one.lr) == (other.mean_return, other.lr)
        assert one.explained_variance == pytest.approx(other.explained_variance, abs=1e-4)
        assert torch.allclose(policy.narrow.up, again.narrow.up, atol=1e-4)
        assert torch.allclose(policy.narrow.down, again.narrow.down, rtol=1e-3, atol=1e-4)


def learnt_under(learner: PPO) -> dict[str, dict[str, torch.Tensor]]:
    """What the learner has, under every prompt."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in learner.tensors.items():
        number, _, rest = name.partition(".")
        found.setdefault(learner.state.head.prompts[int(number)], {})[rest] = value
    return found


def test_each_system_prompt_has_an_adapter_of_its_own_which_comes_back_with_it(tokenizer) -> None:
    policy = head_policy(tokenizer)
    learner = PPO(policy, replace(CONFIG, kl_coef=0.1))
    assert not learner.use_prompt("Play.")
    learner.update(play(policy))
    version = policy.version
    before = learnt_under(learner)["Play."]
    assert before["adam.exp_avg"].any()
    assert float(before["rate"]) == learner.steps.optimizer.param_groups[0]["lr"]
    assert not learner.use_prompt("Play.")
    assert policy.version == version
    assert learner.use_prompt("Play well.")
    assert policy.version > version
    begun = learnt_under(learner)["Play well."]
    assert not torch.equal(begun["rows"], before["rows"])
    assert not torch.equal(begun["down"], before["down"])
    assert "adam.exp_avg" not in begun
    assert not begun["reference"].any()
    learner.update(play(policy))
    other = learnt_under(learner)["Play well."]
    assert other["rows"].any()
    assert learner.use_prompt("Play.")
    again = learnt_under(learner)
    assert list(again) == ["Play well.", "Play."]
    for prompt, expected in {"Play.": before, "Play well.": other}.items():
        assert again[prompt].keys() == expected.keys()
        assert all(torch.equal(again[prompt][name], expected[name]) for name in expected)


def test_moments_of_rows_go_along_when_replies_with_other_tokens_come(tokenizer) -> None:
    policy = head_policy(tokenizer)
    learner = head_learner(policy)
    learner.update(play(policy))
    before = learner.tensors["0.adam.exp_avg"]
    new = next(token for token in range(99) if token not in policy.narrow.ids.tolist())
    policy.narrow.include([new], [new])
    moments = learner.tensors
    assert torch.equal(moments["0.adam.exp_avg"][:-1], before)
    assert not moments["0.adam.exp_avg"][-1].any()
    assert float(moments["0.adam.step"]) == 8.0


def test_a_saved_head_is_an_adapter_that_peft_reads(tokenizer, tmp_path) -> None:
    policy = head_policy(tokenizer)
    head_learner(policy).update(play(policy))
    tiny_llama(len(tokenizer)).save_pretrained(tmp_path / "base")
    policy.model.save_pretrained(tmp_path / "adapter")
    import peft

    base = tiny_llama(len(tokenizer))
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    ids = torch.tensor([[4, 5, 6, 7]])
    assert torch.allclose(
        again(input_ids=ids).logits, policy.model.pretrained_model(input_ids=ids).logits, atol=1e-5
    )


def test_the_mean_of_each_wording_is_in_no_direction_and_the_kept_back_one_is_not_trained_on(
    tokenizer,
) -> None:
    policy = head_policy(tokenizer)
    told = ("You see {}.", "There is {} here.", "Now {} is seen.")
    batch = []
    for number in range(len(OBSERVATIONS)):
        for wording in range(2):
            episode = Episode(policy, "Play.", wording)
            episode.kept_back = policy.chat.opening("Play.", told[2].format(number))
            (reply,) = Sampler(policy).reply([episode.observe(told[wording].format(number))])
            episode.reply(reply)
            episode.reward(float(number % 2))
            batch.append(episode.finish("terminated"))
    assert head_learner(policy).update(batch).turns == 2 * len(OBSERVATIONS)
    parting = next(iter(policy.trie.partings)) + 1
    means = []
    for words in told:
        prompts = [policy.chat.opening("Play.", words.format(each)) for each in range(20)]
        means.append(states_of(policy, prompts, policy.trie).hidden[:, parting].mean(0))
    constant, *others = policy.narrow.down.detach()
    assert constant.any()
    seen = torch.stack(means) @ torch.stack(others).T
    assert seen.abs().max() < 1e-3
