"""What an episode keeps, and what of it is trained."""

from __future__ import annotations

import random

import pytest
import torch

from llamagym_tui.engine.learning.packing import (
    Row,
    batch_rows,
    forwards,
    minibatches,
)
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Trajectory, Turn
from llamagym_tui.engine.tokens.token_tree import ActionTrie, Branch, ForwardLimits
from tests.engine.tokens.test_tokenization import REWRITING, with_template


def reply_of(policy, text: str) -> Reply:
    ids = list(policy.chat.reply_ids(text))
    return Reply(ids, [-0.1 * (at + 1) for at in range(len(ids))], value=0.5, ended=True)


def two_turns(policy) -> Episode:
    episode = Episode(policy, "Play.")
    episode.observe("Your total: 12.")
    episode.reply(reply_of(policy, '{"action": 1}'))
    episode.reward(0.0)
    episode.observe("Your total: 18.")
    episode.reply(reply_of(policy, '{"action": 0}'))
    episode.reward(1.0)
    return episode


def test_the_mask_is_exactly_the_sampled_tokens(make_policy):
    policy = make_policy()
    (segment,) = two_turns(policy).finish("terminated").segments
    sampled = [token for token, kept in zip(segment.ids, segment.mask, strict=True) if kept]
    assert sampled == [
        *policy.chat.reply_ids('{"action": 1}'),
        *policy.chat.reply_ids('{"action": 0}'),
    ]
    text = policy.chat.tokenizer.decode([*segment.prefix, *segment.ids])
    assert text.endswith('<|user|>Your total: 18.<|end|><|assistant|>{"action": 0}<|end|>')


def test_a_turn_keeps_value_and_logprobs_of_the_moment_when_it_was_sampled(make_policy):
    policy = make_policy()
    for turn in two_turns(policy).finish("terminated").turns:
        assert (turn.value, turn.logprobs[:2], len(turn.logprobs)) == (
            0.5,
            (-0.1, -0.2),
            turn.end - turn.start,
        )
        assert len(turn.branches) == 1


def test_a_reward_belongs_whole_to_the_turn_that_earned_it(make_policy):
    trajectory = two_turns(make_policy()).finish("terminated")
    assert [turn.reward for turn in trajectory.turns] == [0.0, 1.0]
    assert trajectory.episode_return == 1.0


def test_rewards_of_one_turn_add_up_and_an_unreadable_reply_stays_one(make_policy):
    episode = Episode(make_policy(), "Play.")
    episode.observe("a")
    episode.reply(Reply([5], [0.0], 0.0, False))
    episode.reward(0.0, parse_failed=True)
    episode.reward(0.5)
    episode.reward(0.25)
    (turn,) = episode.finish("terminated").turns
    assert (turn.reward, turn.parse_failed) == (0.75, True)


def test_a_reply_in_unusual_tokens_is_kept_and_continued_as_it_was_sampled(make_policy):
    policy = make_policy()
    chat, episode = policy.chat, Episode(policy, "Play.")
    episode.observe("a")
    spelt = [token for letter in '{"action": 1}' for token in chat.reply_ids(letter)[:1]]
    assert len(spelt) > len(chat.reply_ids('{"action": 1}'))
    assert (
        episode.reply(Reply([*spelt, chat.end_ids[0]], [-0.5] * (len(spelt) + 1), 0.0, True))
        == '{"action": 1}'
    )
    follows = list(chat.continuation("b", ended=True))
    assert list(episode.observe("b").rest)[-len(follows) :] == follows
    (segment,) = episode.finish("terminated").segments
    assert segment.ids[-len(follows) - len(spelt) - 1 :] == [*spelt, chat.end_ids[0], *follows]


def test_a_truncated_episode_keeps_its_true_final_observation_as_a_prompt(make_policy):
    policy = make_policy()
    trajectory = two_turns(policy).finish("truncated", "Your total: 20.")
    assert trajectory.final_prompt is not None
    ids = [*trajectory.final_prompt.prefix, *trajectory.final_prompt.rest]
    assert policy.chat.tokenizer.decode(ids).endswith(
        '{"action": 0}<|end|><|user|>Your total: 20.<|end|><|assistant|>'
    )
    with torch.no_grad():
        expected = float(policy.model(torch.tensor([ids])).values[0, -1])
    assert policy.bootstrap_values([trajectory]) == pytest.approx([expected], abs=1e-5)
    assert policy.bootstrap_values([two_turns(policy).finish("terminated")]) == [0.0]


def test_a_template_that_rewrites_history_gets_one_segment_a_turn(make_policy, tokenizer):
    policy = make_policy()
    policy.chat = with_template(tokenizer, REWRITING)
    episode = Episode(policy, "Play.")
    episode.observe("a")
    episode.reply(reply_of(policy, "why</think>left"))
    prompt = episode.observe("b")
    episode.reply(reply_of(policy, "right"))
    trajectory = episode.finish("terminated")
    assert [len(segment.turns) for segment in trajectory.segments] == [1, 1]
    whole = policy.chat.tokenizer.decode([*prompt.prefix, *prompt.rest])
    assert "why" not in whole
    assert "left" in whole


def test_branches_are_where_admissible_replies_part():
    trie = ActionTrie([(1, 2, 9), (1, 3, 9), (1, 3, 4, 9)])
    assert trie.branches((1, 2, 9)) == (Branch(1, (2, 3)),)
    assert trie.branches((1, 3, 4, 9)) == (Branch(1, (2, 3)), Branch(2, (4, 9)))
    assert trie.branches((1, 7)) == ()
    assert trie.branches((5,)) == ()
    assert trie.branches((5, 1, 2)) == ()


def row(length: int, turns: int, first_turn: int, prefix: tuple[int, ...] = (1,)) -> Row:
    ids = list(range(100, 100 + length))
    made = [Turn(at + 1, at + 2, (-0.5,), 0.0, 0.0) for at in range(turns)]
    return Row(Segment(prefix, ids, made), first_turn)


def only(*rows: Row, tokens: int = 1000):
    (part,) = forwards(rows, ForwardLimits(tokens), torch.device("cpu"))
    return part


def columns(part) -> list[int]:
    """Of each scored token, the column that predicts it."""
    return part.place_columns[part.token_places].tolist()


def test_decisions_are_predicted_from_the_column_before_theirs():
    turn = Turn(2, 4, (-0.3, -0.4), 0.0, 0.0, branches=(Branch(1, (7, 8)),))
    part = only(Row(Segment((1,), [10, 11, 12, 13], [turn]), 5))
    assert part.trees[0].ids == [1, 10, 11, 12]
    assert columns(part) == [2, 3]
    assert part.token_ids.tolist() == [12, 13]
    assert part.decision_turns.tolist() == [5, 5]
    assert part.turns.columns.tolist() == [2]
    assert part.old_logprobs.tolist() == pytest.approx([-0.3, -0.4])
    assert (part.branch_tokens.tolist(), part.branch_children.tolist()) == ([1], [[7, 8]])


def test_a_turn_that_someone_else_chose_has_no_loss():
    turns = [Turn(1, 2, (-0.3,), 0.0, 0.0, is_trained=False), Turn(3, 4, (-0.4,), 0.0, 0.0)]
    segment = Segment((1,), [10, 11, 12, 13], turns)
    part = only(Row(segment, 0))
    assert part.token_ids.tolist() == [13]
    assert part.turns.indices.tolist() == [1]
    assert segment.mask == [False, False, False, True]


def test_rows_that_begin_alike_share_what_they_begin_with():
    one = Row(Segment((1,), [10, 11, 12, 13], [Turn(2, 4, (-0.3, -0.4), 0.0, 0.0)]), 0)
    other = Row(Segment((1,), [10, 11, 14, 13], [Turn(2, 4, (-0.1, -0.2), 0.0, 0.0)]), 1)
    part = only(one, other, Row(one.segment, 2))
    assert part.trees[0].ids == [1, 10, 11, 12, 14]
    assert part.trees[0].depths == [0, 1, 2, 3, 3]
    assert list(zip(part.decision_turns.tolist(), columns(part), strict=True)) == [
        (0, 2), (0, 3), (2, 2), (2, 3), (1, 2), (1, 4)
    ]  # fmt: skip


def test_a_reply_that_was_chosen_by_score_brings_those_that_might_have_been():
    choice = Choice(1, -0.7, replies=((7, 8, 2), (7, 9, 2)), divisors=(1.0, 1.0))
    part = only(
        Row(Segment((1,), [10, 11, 7, 9, 2], [Turn(2, 5, (-0.1,) * 3, 0.0, 0.0, choice=choice)]), 4)
    )
    assert part.trees[0].ids == [1, 10, 11, 7, 9, 8]
    assert part.token_ids.tolist() == [7, 8, 2, 7, 9, 2]
    assert columns(part) == [2, 3, 5, 2, 3, 4]
    assert len(part.place_columns) == 4
    assert (part.decision_turns.tolist(), part.old_logprobs.tolist()) == (
        [4],
        pytest.approx([-0.7]),
    )
    assert part.choices is not None
    assert part.choices.token_replies.tolist() == [0, 0, 0, 1, 1, 1]
    assert part.choices.chosen.tolist() == [1]


def test_minibatches_are_random_parts_that_hold_every_row_once():
    rows = [row(5 + n % 7, 1 + n % 3, n) for n in range(40)]
    parts = list(minibatches(rows, 20, random.Random(0)))
    assert sorted(r.first_turn for part in parts for r in part) == list(range(40))
    assert len(parts) == 4
    assert all(len({len(r.segment.ids) for r in part}) > 1 for part in parts)


def test_a_forward_scores_no_more_tokens_than_allowed_also_where_rows_are_alike():
    alike = [row(9, 3, 3 * number) for number in range(5)]
    scored = [
        len(part.token_ids) for part in forwards(alike, ForwardLimits(1000, 6), torch.device("cpu"))
    ]
    assert scored == [6, 6, 3]
    larger = [row(9, 3, 0)]
    assert [
        len(part.token_ids)
        for part in forwards(larger, ForwardLimits(1000, 2), torch.device("cpu"))
    ] == [3]


def test_turns_are_numbered_through_a_batch_and_through_segments():
    one, two, three = (row(6, turns, 0).segment for turns in (1, 2, 1))
    trajectories = [Trajectory([one, two], "terminated"), Trajectory([three], "terminated")]
    assert [r.first_turn for r in batch_rows(trajectories)] == [0, 1, 3]


def test_a_forward_is_as_large_as_a_flat_tree_or_its_rows_may_be():
    alike = [
        Row(Segment((1,), [10, number], [Turn(1, 2, (-0.5,), 0.0, 0.0)]), number)
        for number in range(6)
    ]

    def sizes(*, flat: bool) -> list[int]:
        limits = ForwardLimits(2, flat=flat)
        return [len(part.turns.indices) for part in forwards(alike, limits, torch.device("cpu"))]

    assert sizes(flat=True) == [1] * 6
    prompts = [row(3, 1, number, prefix=(number,)) for number in range(4)]
    parts = forwards(prompts, ForwardLimits(4), torch.device("cpu"))
    assert [part.trees[0].row_tokens for part in parts] == [4, 4]
