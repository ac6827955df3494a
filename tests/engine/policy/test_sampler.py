"""What was sampled is what is scored: ids, log-probabilities and values of ragged, continued conversations."""

from __future__ import annotations

import random

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.engine.policy import sampler as sampler_module
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.errors import ConfigError

SCORED = ['{"action": 0}', 'I say: {"action": 1}']


def scored(policy, ids: list[int], start: int, end: int) -> tuple[list[float], float]:
    """Log-probabilities of ids[start:end] and V before them, by one plain forward of the whole row."""
    with torch.no_grad():
        output = policy.model(torch.tensor([ids]))
    logprobs = (output.logits[0].float() / policy.generation.temperature).log_softmax(-1)
    return [float(logprobs[at - 1, ids[at]]) for at in range(start, end)], float(
        output.values[0, start - 1]
    )


def is_as_scored(policy, row: list[int], reply) -> None:
    """Add a reply to its row, and hold it to one plain forward of the whole row."""
    start = len(row)
    row += reply.ids
    logprobs, value = scored(policy, row, start, len(row))
    assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
    assert reply.value == pytest.approx(value, abs=1e-4)


def begun(policy, slots: int, observation: str = "x"):
    """A sampler whose slots all begin with one conversation, and its opening."""
    sampler, opening = Sampler(policy, slots), policy.chat.opening("Play.", observation)
    for slot in range(slots):
        sampler.restart(slot, opening.prefix)
    return sampler, opening


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("lora", [False, True])
def test_sampled_logprobs_and_values_are_those_of_a_plain_forward(make_policy, lora, temperature):
    policy = make_policy(lora=lora, temperature=temperature)
    sampler, chat = Sampler(policy, 3), policy.chat
    openings = [
        chat.opening("Play a game.", text) for text in ("a", "a longer observation: 15.", "b c")
    ]
    for slot, opening in enumerate(openings):
        sampler.restart(slot, opening.prefix)
    rows = [[*opening.prefix, *opening.rest] for opening in openings]
    prompts = [list(opening.rest) for opening in openings]
    for turn in range(3):
        slots = [0, 1, 2] if turn != 1 else [0, 2]
        replies = sampler.reply(slots, [prompts[slot] for slot in slots])
        for slot, reply in zip(slots, replies, strict=True):
            is_as_scored(policy, rows[slot], reply)
            prompts[slot] = [
                reply.ids[-1],
                *chat.continuation("more " * (slot + 1), ended=reply.ended),
            ]
            rows[slot] += prompts[slot][1:]


def test_a_conversation_goes_on_as_it_was_when_the_cache_grows(make_policy):
    policy = make_policy()
    sampler, row = Sampler(policy, 1), list(range(10, 60))
    sampler.restart(0, ())
    prompt = list(row)
    for _ in range(3):  # past the 64 columns that a cache begins with, and past their double
        (reply,) = sampler.reply([0], [prompt])
        is_as_scored(policy, row, reply)
        row += range(100, 150)
        prompt = [reply.ids[-1], *range(100, 150)]
    assert len(row) > 2 * 64


def test_a_restarted_slot_remembers_nothing(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play.", "Your total: 12.")
    fresh, used = Sampler(policy, 1), Sampler(policy, 1)
    used.restart(0, opening.prefix)
    used.reply([0], [[5, 6, 7, 8, 9] * 5])
    for sampler in (fresh, used):
        sampler.restart(0, opening.prefix)
    first, second = (s.reply([0], [list(opening.rest)], greedy=True)[0] for s in (fresh, used))
    assert first.ids == second.ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)


def test_a_slot_that_held_no_prefix_in_between_gets_its_prefix_again(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play a long game of cards.", "Your total: 12.")
    sampler, found = Sampler(policy, 1), []
    for prefix in (opening.prefix, (), opening.prefix):
        sampler.restart(0, prefix)
        found += sampler.reply([0], [list(opening.rest)], greedy=True)
    first, _, again = found
    assert again.logprobs == pytest.approx(first.logprobs, abs=1e-5)
    assert again.ids == first.ids


def test_a_prefix_is_computed_again_after_an_update(make_policy):
    policy = make_policy()
    opening = policy.chat.opening("Play a long game of cards.", "Your total: 12.")
    sampler = Sampler(policy, 1)
    sampler.restart(0, opening.prefix)
    sampler.reply([0], [list(opening.rest)])
    with torch.no_grad():
        for parameter in policy.model.causal_lm.parameters():
            parameter.mul_(1.1)
    policy.version += 1
    sampler.restart(0, opening.prefix)
    reply = sampler.reply([0], [list(opening.rest)])[0]
    ids = [*opening.prefix, *opening.rest, *reply.ids]
    expected, _ = scored(policy, ids, len(ids) - len(reply.ids), len(ids))
    assert reply.logprobs == pytest.approx(expected, abs=1e-4)


def test_greedy_takes_the_most_probable_token(make_policy):
    policy = make_policy(max_new_tokens=3)
    sampler, opening = begun(policy, 1)
    reply = sampler.reply([0], [list(opening.rest)], greedy=True)[0]
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*opening.prefix, *opening.rest]])).logits[0, -1]
    # Of two that are as probable up to rounding it may take either.
    assert float(logits[reply.ids[0]]) == pytest.approx(float(logits.max()), abs=1e-4)


def test_a_reply_ends_at_the_templates_end_or_at_the_allowed_tokens(make_policy):
    policy = make_policy(max_new_tokens=5)
    sampler, opening = begun(policy, 64)
    for reply in sampler.reply(range(64), [list(opening.rest)] * 64):
        assert len(reply.ids) == len(reply.logprobs) <= 5
        assert reply.ended == (reply.ids[-1] in policy.chat.end_ids)
        assert not any(token in policy.chat.end_ids for token in reply.ids[:-1])


def test_an_end_that_was_sampled_is_kept_and_ends_that_reply_alone(make_policy):
    policy = make_policy(max_new_tokens=4)
    sampler, end = Sampler(policy, 2), policy.chat.end_ids[0]
    script = iter([[5, 6], [end, 7], [end]])
    sampler.sample = lambda logits, greedy: (
        torch.tensor(next(script)),
        torch.full((len(logits),), -0.5),
    )
    replies = sampler.reply([0, 1], [[8], [9]])
    assert [reply.ids for reply in replies] == [[5, end], [6, 7, end]]
    assert all(reply.ended and len(reply.logprobs) == len(reply.ids) for reply in replies)


def test_tokens_are_drawn_from_the_whole_distribution_that_their_logprobs_state(make_policy):
    sampler = Sampler(make_policy(temperature=0.5), 1)
    logits = torch.arange(24) / 12
    tokens, logprobs = sampler.sample(logits.expand(40_000, -1), greedy=False)
    p = (logits / 0.5).softmax(-1)
    assert logprobs.exp().tolist() == pytest.approx(p[tokens].tolist(), abs=1e-6)
    # Four standard errors of a count.
    assert (
        (tokens.bincount(minlength=24) / 40_000 - p).abs() < 4 * (p * (1 - p) / 40_000).sqrt()
    ).all()


def test_the_same_seed_samples_the_same_replies(make_policy):
    def sampled(seed: int) -> list[int]:
        sampler, opening = begun(make_policy(seed=seed), 1)
        return sampler.reply([0], [list(opening.rest)])[0].ids

    assert sampled(3) == sampled(3) != sampled(4)


def scripted(sampler: Sampler, script: list[list[int]]) -> None:
    """Make the sampler draw given replies, each from its first id on."""
    left, extend = [list(ids) for ids in script], Sampler.extend

    def extended(logits, replies, live, greedy, on_token, *rest, **named):
        tokens = torch.tensor([left[index].pop(0) for index in live])
        logprobs = (logits / sampler.policy.generation.temperature).log_softmax(-1)
        sampler.sample = lambda logits, greedy: (tokens, logprobs[range(len(tokens)), tokens])
        return extend(sampler, logits, replies, live, greedy, on_token, *rest, **named)

    sampler.extend = extended


@pytest.mark.parametrize("lora", [False, True])
def test_replies_that_follow_or_leave_the_tree_of_admissible_ones_go_on_as_if_sampled_token_by_token(
    make_policy, lora
):
    policy = make_policy(lora=lora, temperature=0.8, max_new_tokens=8)
    chat, (stick, hit) = policy.chat, policy.trie.replies
    astray = [*hit[:2], 7, 9, hit[-1]]
    sampler = Sampler(policy, 4)
    openings = [
        chat.opening("Play a game.", text)
        for text in ("a", "a longer observation: 15.", "b c", "d")
    ]
    rows = [[*opening.prefix, *opening.rest] for opening in openings]
    prompts = [list(opening.rest) for opening in openings]
    for slot, opening in enumerate(openings):
        sampler.restart(slot, opening.prefix)
    for script in ([hit, stick, astray, hit], [stick, hit, hit, astray], [hit, hit, stick, stick]):
        scripted(sampler, script)
        for slot, reply in enumerate(sampler.reply(range(4), prompts)):
            assert reply.ids == list(script[slot])
            is_as_scored(policy, rows[slot], reply)
            prompts[slot] = [reply.ids[-1], *chat.continuation("more " * (slot + 1), ended=True)]
            rows[slot] += prompts[slot][1:]


def test_computing_ahead_changes_no_sample(make_policy, monkeypatch):
    def sampled() -> list[tuple[list[int], list[float]]]:
        sampler, opening = begun(make_policy(seed=5, max_new_tokens=6), 32)
        return [
            (reply.ids, reply.logprobs)
            for reply in sampler.reply(range(32), [list(opening.rest)] * 32)
        ]

    ahead = sampled()
    monkeypatch.setattr(sampler_module, "LARGEST_AHEAD", 0)
    plain = sampled()
    assert [ids for ids, _ in ahead] == [ids for ids, _ in plain]
    assert [p for _, ps in ahead for p in ps] == pytest.approx(
        [p for _, ps in plain for p in ps], abs=1e-4
    )


def test_replies_that_never_follow_the_tree_are_not_computed_ahead_for_long(make_policy):
    policy = make_policy(max_new_tokens=2)
    sampler, opening = Sampler(policy, 1), policy.chat.opening("Play.", "x")
    widths = []
    backbone = policy.model.backbone
    encode, encode_next = backbone.encode, backbone.encode_next
    backbone.encode = lambda ids, *rest: widths.append(ids.shape[1]) or encode(ids, *rest)
    backbone.encode_next = lambda ids, *rest: (
        widths.append(ids.shape[1:].numel()) or encode_next(ids, *rest)
    )
    assert backbone.is_lean  # or a next token passes `encode`, too
    for _ in range(40):
        sampler.memory.clear()
        sampler._slots.forget()
        sampler.restart(0, opening.prefix)
        scripted(sampler, [[5, 6]])
        sampler.reply([0], [list(opening.rest)])
    assert widths[1] == len(opening.rest) + len(policy.trie.tree)
    assert widths[-2:] == [len(opening.rest), 1]


@pytest.mark.parametrize(
    ("normalization", "divisors"),
    [("sum", (1, 1)), ("token", None), pytest.param("word", (2, 4), marks=pytest.mark.slow)],
)
def test_a_scored_reply_is_drawn_from_the_softmax_of_normalised_scores(
    make_policy, normalization, divisors
):
    policy = make_policy(
        temperature=0.5, policy="score", normalization=normalization, replies=SCORED
    )
    divisors = divisors or tuple(len(policy.chat.reply_ids(reply)) for reply in SCORED)
    assert policy.reply_divisors(policy.trie) == divisors
    sampler, opening = begun(policy, 4000, "Your total: 12.")
    replies = sampler.reply(range(4000), [list(opening.rest)] * 4000)
    prompt = [*opening.prefix, *opening.rest]
    # `scored` divides logits by the temperature; scores are of the model's own probabilities.
    policy.generation = replace(policy.generation, temperature=1.0)
    sums = [
        sum(scored(policy, [*prompt, *ids], len(prompt), len(prompt) + len(ids))[0])
        for ids in policy.trie.replies
    ]
    shares = (torch.tensor(sums) / torch.tensor(divisors) / 0.5).softmax(-1)
    for reply in replies[:50]:
        assert reply.choice is not None
        assert reply.ids == list(policy.trie.replies[reply.choice.chosen])
        assert reply.choice.logprob == pytest.approx(
            float(shares[reply.choice.chosen].log()), abs=1e-4
        )
    share = float(shares[1])
    hits = sum(reply.choice is not None and reply.choice.chosen == 1 for reply in replies)
    assert abs(hits / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_a_scored_conversation_goes_on_after_the_reply_that_was_chosen(make_policy):
    policy = make_policy(policy="score", replies=SCORED)
    sampler, opening = begun(policy, 2, "Your total: 12.")
    rows = [[*opening.prefix, *opening.rest] for _ in range(2)]
    prompts = [list(opening.rest) for _ in range(2)]
    for _ in range(4):
        for slot, reply in enumerate(sampler.reply([0, 1], prompts)):
            is_as_scored(policy, rows[slot], reply)
            prompts[slot] = [reply.ids[-1], *policy.chat.continuation(f"more {slot}", ended=True)]
            rows[slot] += prompts[slot][1:]


def test_the_score_policy_needs_discrete_actions(make_policy):
    with pytest.raises(ConfigError, match="names no discrete actions"):
        make_policy(policy="score", replies=[])


def test_conversations_that_begin_alike_are_computed_once_and_go_on_apart(make_policy):
    policy = make_policy(temperature=0.9)
    chat, computed = policy.chat, []
    encode = policy.model.backbone.encode
    policy.model.backbone.encode = lambda ids, *rest: (
        computed.append(len(ids)) or encode(ids, *rest)
    )
    sampler = Sampler(policy, 5)
    openings = [chat.opening("Play.", observation) for observation in ("x", "y", "x", "x", "y")]
    rows, prompts = [[*o.prefix, *o.rest] for o in openings], [list(o.rest) for o in openings]
    for slot, opening in enumerate(openings):
        sampler.restart(slot, opening.prefix)
    for turn in range(3):
        replies = sampler.reply(range(5), prompts)
        if turn == 0:
            assert computed[:2] == [1, 2], "the prefix, and two prompts"
        for slot, reply in enumerate(replies):
            is_as_scored(policy, rows[slot], reply)
            prompts[slot] = [reply.ids[-1], *chat.continuation("the same", ended=reply.ended)]
            rows[slot] += prompts[slot][1:]


@pytest.mark.parametrize(
    ("lengths", "forwards"),
    [
        ([5] * 3 + [60] + [5] * 36, [(1, 60), (39, 5)]),
        ([40] * 40 + [5] * 3, [(43, 40)]),  # 3 x 35 tokens of padding are less than a forward
    ],
)
def test_prompts_are_padded_to_the_longest_where_that_costs_less_than_a_forward(
    make_policy, lengths, forwards
):
    policy = make_policy()
    shapes, encode = [], policy.model.backbone.encode
    sampler = Sampler(policy, len(lengths))
    for slot in range(len(lengths)):
        sampler.restart(slot, (5, 6))
    policy.model.backbone.encode = lambda ids, *rest: (
        shapes.append(tuple(ids.shape)) or encode(ids, *rest)
    )
    sampler.reply(range(len(lengths)), [[7 + slot] * length for slot, length in enumerate(lengths)])
    nodes = len(policy.trie.tree)
    expected = [(rows, columns + nodes) for rows, columns in forwards]
    assert shapes.pop(0) == (1, 2), "the prefix"
    assert sorted(shapes[: len(expected)]) == expected
    assert all(columns == 1 for _, columns in shapes[len(expected) :])


@pytest.mark.parametrize("kind", ["generate", "score"])
def test_every_token_is_reported_once_in_order_with_the_reply_that_it_belongs_to(make_policy, kind):
    policy = make_policy(policy=kind, max_new_tokens=8, temperature=3.0)
    sampler, opening = Sampler(policy, 40), policy.chat.opening("Play.", "x")
    slots = range(1, 40, 2)
    for slot in slots:
        sampler.restart(slot, opening.prefix)
    reported: list[list[int]] = [[] for _ in slots]
    replies = sampler.reply(
        slots,
        [list(opening.rest)] * len(slots),
        on_token=lambda index, token: reported[index].append(token),
    )
    assert reported == [reply.ids for reply in replies]
    assert len({tuple(ids) for ids in reported}) > 1


def test_computing_ahead_is_tried_again_after_a_rest(make_policy, monkeypatch):
    monkeypatch.setattr(sampler_module, "TRY_AGAIN", 3)
    sampler = Sampler(make_policy(), 1)
    sampler.lookahead = sampler_module.Lookahead(0.0)
    assert [sampler._looks_ahead() for _ in range(5)] == [False, False, False, False, True]


def test_whoever_goes_on_each_conversation_keeps_its_own_keys_and_values(make_policy):
    policy, draw = make_policy(max_new_tokens=8), random.Random(3)
    sampler, chat = Sampler(policy, 7), policy.chat
    rows, prompts = [], []
    for slot in range(7):
        opening = chat.opening(
            "Play.", "a longer text " * draw.choice((0, 0, 20)) + draw.choice("xy")
        )
        sampler.restart(slot, opening.prefix)
        rows.append([*opening.prefix, *opening.rest])
        prompts.append(list(opening.rest))
    for slots in (
        [0, 1, 2, 3, 4, 5, 6],
        [5, 6],
        [1, 3, 4, 6],
        [0],
        [0, 2, 5],
        [0, 1, 2, 3, 4, 5, 6],
    ):
        script = [
            [draw.randrange(5, 900) for _ in range(draw.choice((1, 3, 7)))] + [chat.end_ids[0]]
            for _ in slots
        ]
        scripted(sampler, script)
        for slot, reply in zip(
            slots, sampler.reply(slots, [prompts[slot] for slot in slots]), strict=True
        ):
            is_as_scored(policy, rows[slot], reply)
            prompts[slot] = [
                reply.ids[-1],
                *chat.continuation("more " * draw.choice((1, 1, 60)), ended=True),
            ]
            rows[slot] += prompts[slot][1:]
