"""Which turns a prompt has: the last ones that are kept, as many as the model can read."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.learning.trl_training import NOT_TRAINED, examples
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.game.chat import assistant, system, user
from tests.engine.policy.test_trajectory import reply_of

OBSERVATIONS = ("a", "b", "c", "d")


def played(policy, *, final: str | None = None):
    """The prompts of an episode of four turns, as texts, and its trajectory."""
    episode, prompts = Episode(policy, "Play."), []
    for number, text in enumerate(OBSERVATIONS):
        found = episode.prompt_for(text)
        assert episode.observe(text) == found
        prompts.append(policy.chat.tokenizer.decode([*found.prefix, *found.rest]))
        episode.reply(reply_of(policy, f"{number}"))
        episode.reward(float(number))
    return prompts, episode.finish("terminated" if final is None else "truncated", final)


def worded(*turns: str) -> str:
    return "<|system|>Play.<|end|>" + "".join(turns) + "<|assistant|>"


def turn(number: int) -> str:
    return f"<|user|>{OBSERVATIONS[number]}<|end|><|assistant|>{number}<|end|>"


def test_with_history_0_a_prompt_is_system_prompt_and_present_observation(make_policy):
    policy = make_policy()
    policy.history = 0
    prompts, trajectory = played(policy)
    assert prompts == [worded(f"<|user|>{text}<|end|>") for text in OBSERVATIONS]
    assert [len(segment.turns) for segment in trajectory.segments] == [1, 1, 1, 1]
    assert [turn.reward for turn in trajectory.turns] == [0.0, 1.0, 2.0, 3.0]


def test_with_history_n_the_last_n_turns_stand_before_the_observation(make_policy):
    policy = make_policy()
    policy.history = 2
    prompts, trajectory = played(policy)
    assert prompts[2] == worded(turn(0), turn(1), "<|user|>c<|end|>")
    assert prompts[3] == worded(turn(1), turn(2), "<|user|>d<|end|>")
    last = trajectory.segments[-1]
    assert [token for token, kept in zip(last.ids, last.mask, strict=True) if kept] == reply_of(
        policy, "3"
    ).ids


def test_earlier_replies_stand_in_the_prompt_by_the_tokens_that_were_sampled(make_policy):
    policy = make_policy()
    policy.history = 1
    chat, episode = policy.chat, Episode(policy, "Play.")
    spelt = [token for letter in '{"action": 1}' for token in chat.reply_ids(letter)[:1]]
    for text in ("a", "b"):
        episode.observe(text)
        episode.reply(Reply([*spelt, chat.end_ids[0]], [-0.5] * (len(spelt) + 1), 0.0, True))
    opening = chat.opening("Play.", "b")
    expected = [*opening.rest, *spelt, chat.end_ids[0], *chat.continuation("c", ended=True)]
    prompt = episode.observe("c")
    assert (prompt.prefix, list(prompt.rest)) == (opening.prefix, expected)


def test_a_prompt_that_would_not_fit_leaves_out_as_few_of_the_oldest_turns_as_it_must(make_policy):
    policy = make_policy()
    policy.history = 3
    prompts, trajectory = played(policy)
    assert prompts[3] == worded(*map(turn, range(3)), "<|user|>d<|end|>")
    tokens = [
        len(policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in prompts
    ]
    policy.context = tokens[2] + policy.generation.max_new_tokens  # all but the last one fit
    episode = Episode(policy, "Play.")
    assert episode.left_out("a") == 0
    prompts, trajectory = played(policy)
    assert prompts[2:] == [
        worded(turn(0), turn(1), "<|user|>c<|end|>"),
        worded(turn(1), turn(2), "<|user|>d<|end|>"),
    ]
    assert [len(segment.turns) for segment in trajectory.segments] == [3, 1]


def test_only_an_observation_that_does_not_fit_by_itself_is_too_long(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play.", "a")
    policy.context = len(opening.prefix) + len(opening.rest) + policy.generation.max_new_tokens
    prompts, _ = played(policy)
    assert prompts == [worded(f"<|user|>{text}<|end|>") for text in OBSERVATIONS]
    with pytest.raises(PromptTooLongError):
        Episode(policy, "Play.").require_fit("a longer one")


def test_the_value_after_a_truncated_episode_is_that_of_the_cut_prompt(make_policy):
    policy = make_policy()
    policy.history = 0
    _, trajectory = played(policy, final="e")
    opening = policy.chat.opening("Play.", "e")
    with torch.no_grad():
        expected = float(
            policy.model(torch.tensor([[*opening.prefix, *opening.rest]])).values[0, -1]
        )
    assert policy.bootstrap_values([trajectory]) == pytest.approx([expected], abs=1e-5)


@torch.no_grad()
def test_sampled_with_a_history_each_reply_has_the_log_probability_of_its_own_prompt(make_policy):
    policy = make_policy()
    policy.history = 1
    sampler, episodes = Sampler(policy), [Episode(policy, "Play.") for _ in range(3)]
    for text in ("a", "a longer observation: 15.", "b", "c d"):
        prompts = [episode.observe(f"{text}{slot}") for slot, episode in enumerate(episodes)]
        replies = sampler.reply(prompts)
        for episode, prompt, reply in zip(episodes, prompts, replies, strict=True):
            before = [*prompt.prefix, *prompt.rest]
            output = policy.model(torch.tensor([[*before, *reply.ids]]))
            logprobs = output.logits[0, len(before) - 1 : -1].log_softmax(-1)
            found = logprobs.gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
            assert reply.logprobs == pytest.approx(found.tolist(), abs=1e-5)
            assert reply.value == pytest.approx(
                float(output.values[0, len(before) - 1]), rel=1e-5, abs=1e-5
            )
            episode.reply(reply)


CONVERSATION = [
    system("Play."),
    user("a"),
    assistant("0"),
    user("b"),
    {**assistant("1"), "weight": 0},
    user("c"),
]


def test_demonstrations_are_cut_as_the_policy_would_see_them(make_policy):
    policy = make_policy()
    policy.history = 1
    rows = examples(policy, [*CONVERSATION, assistant("2")])  # type: ignore[list-item]
    decode = policy.chat.tokenizer.decode
    assert [decode(row.input_ids) for row in rows] == [
        worded("<|user|>a<|end|>") + "0<|end|><|user|>b<|end|><|assistant|>1<|end|>",
        worded(turn(1), "<|user|>c<|end|>") + "2<|end|>",
    ]
    trained = [decode([token for token in row.labels if token != NOT_TRAINED]) for row in rows]
    assert trained == ["0<|end|>", "2<|end|>"], "each reply once, those of weight 0 never"
