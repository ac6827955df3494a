"""Records of other trainers as rollouts. What a record is, its keys say; values of another type count as not there.

Sources of the formats:

- verl: ``_dump_generations`` of its trainers: ``input``, ``output``, ``score``, ``step`` and more.
- TRL: the table of ``GRPOTrainer.log``: ``step``, ``prompt``, ``completion``, a column for each reward, ``advantage``.
- verifiers and prime-rl: an ``Episode`` or a ``Trace`` with its graph of messages; before that, rows with ``prompt``,
  ``completion``, ``reward``, ``example_id`` and ``trajectory``.
- anything else with ``messages``, or with ``prompt`` and ``completion``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from llamagym_tui.rollouts.rollout import Rollout, Said, Token

TextsOf = Callable[[Sequence[int]], list[str]]
"""The text of each token, from their ids."""

STEP = ("step", "global_step", "training_step")
GROUP = ("group", "group_id", "example_id", "prompt_id")
REWARD = ("reward", "score", "return")
IDS = ("token_ids", "completion_ids", "response_ids")
LOGPROBS = ("logprobs", "log_probs", "old_logprobs", "old_log_probs", "completion_logprobs")
REFERENCE = ("reference_logprobs", "ref_logprobs", "ref_log_probs")
THOUGHT = ("reasoning_content", "reasoning", "thinking")
READ = {
    *(*STEP, *GROUP, *REWARD, *IDS, *LOGPROBS, *REFERENCE),
    *("messages", "prompt", "completion", "input", "output", "advantage", "advantages", "tokens"),
}
"""Fields that are shown in their own place."""


def rollouts_of(record: Any, texts_of: TextsOf) -> list[Rollout]:
    """The rollouts of a record; none if it is of no known format."""
    if not isinstance(record, dict):
        return []
    if isinstance(record.get("traces"), list):
        traces = [each for each in record["traces"] if isinstance(each, dict)]
        return [found for each in traces for found in _branches(each, record, texts_of)]
    if isinstance(record.get("nodes"), list):
        return _branches(record, record, texts_of)
    said = _conversation(record, texts_of)
    if not said:
        return []
    return [
        Rollout(
            messages=tuple(said),
            step=_whole(record, *STEP),
            group=_text(_first(record, *GROUP)),
            reward=_reward(record, said),
            advantage=_number(record, "advantage", "advantages"),
            facts=_facts(record),
        )
    ]


def _reward(record: Mapping[str, Any], said: Sequence[Said]) -> float | None:
    """The reward of a record; else the sum of its parts.

    TRL's table names no sum. Its rewards are its only columns of floats beside the advantage, and weigh the same here.
    """
    found = _number(record, *REWARD)
    if found is not None:
        return found
    parts = [each.reward for each in said if each.reward is not None]
    if "completion" in record and "advantage" in record:
        parts += [
            value
            for name, value in record.items()
            if name not in READ and isinstance(value, float) and math.isfinite(value)
        ]
    return sum(parts) if parts else None


# Conversations


def _conversation(record: Mapping[str, Any], texts_of: TextsOf) -> list[Said]:
    """The messages of a record, and their tokens."""
    if "messages" in record:
        said = _messages(record["messages"], "user", texts_of)
    elif "completion" in record:
        said = _messages(record.get("prompt"), "prompt", texts_of)
        said += _messages(record["completion"], "assistant", texts_of)
    elif "output" in record and "input" in record:
        said = _messages(record["input"], "prompt", texts_of)
        said += _messages(record["output"], "assistant", texts_of)
    else:
        return []
    # verifiers' rows have a trajectory, with the tokens of each turn; other records have those of the last reply.
    turns = [_mapping(_mapping(each).get("tokens")) for each in _items(record.get("trajectory"))]
    turns = turns or [record]
    own = [at for at, each in enumerate(said) if each.role == "assistant"]
    for at, turn in zip(own[-len(turns) :], turns, strict=False):
        if tokens := _tokens(turn, texts_of):
            said[at] = replace(said[at], tokens=tokens)
    return said


def _messages(value: Any, role: str, texts_of: TextsOf) -> list[Said]:
    """Messages as they stand in a file: a text of a role, or a list of messages."""
    if isinstance(value, str):
        return [Said(role, value)]
    listed = [each for each in _items(value) if isinstance(each, Mapping)]
    return [_message(each, role, texts_of) for each in listed]


def _message(message: Mapping[str, Any], role: str, texts_of: TextsOf) -> Said:
    return Said(
        role=_text(message.get("role")) or role,
        text=_content(message.get("content")),
        thought=_text(_first(message, *THOUGHT)),
        calls=tuple(_call(each) for each in _items(message.get("tool_calls"))),
        reward=_number(message, "reward"),
        tokens=_tokens(message, texts_of),
    )


def _content(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if not isinstance(content, str):
        parts = [each for each in _items(content) if isinstance(each, Mapping)]
        texts = [_text(each.get("text")) or f"[{_text(each.get('type'))}]" for each in parts]
        return "\n".join(texts)
    return content


def _call(call: Any) -> str:
    """A call of a tool, as ``name(arguments)``."""
    if not isinstance(call, Mapping):
        return _text(call)
    function = call.get("function")
    named = function if isinstance(function, Mapping) else call
    return f"{_text(named.get('name'))}({_text(named.get('arguments'))})"


# Tokens


def _tokens(holder: Mapping[str, Any], texts_of: TextsOf) -> tuple[Token, ...]:
    """The tokens of a record or a message; none if it has neither their ids nor their texts."""
    logprobs: Any = _first(holder, *LOGPROBS)
    if isinstance(logprobs, Mapping):  # as OpenAI's endpoints have them
        named = [each for each in _items(logprobs.get("content")) if isinstance(each, Mapping)]
        return tuple(Token(_text(each.get("token")), _number(each, "logprob")) for each in named)
    texts = [_text(each) for each in _items(holder.get("tokens"))]
    if not texts:
        ids = _items(_first(holder, *IDS))
        texts = texts_of(ids) if all(isinstance(each, int) for each in ids) else []
    return _joined(texts, logprobs, _first(holder, *REFERENCE), holder.get("advantages"))


def _joined(texts: Sequence[str], *values: Any) -> tuple[Token, ...]:
    """Tokens with their log-probabilities, those under the reference, and their advantages, as far as they reach."""
    numbers = [[_finite(each) for each in _items(value)][: len(texts)] for value in values]
    columns = zip_longest(*numbers, fillvalue=None)
    return tuple(Token(text, *(row or ())) for text, row in zip_longest(texts, columns))


# The message graph of verifiers


def _branches(
    trace: Mapping[str, Any], episode: Mapping[str, Any], texts_of: TextsOf
) -> list[Rollout]:
    """A rollout for each way from the first message to a last one. What leads there is shared by several."""
    nodes = [each for each in _items(trace.get("nodes")) if isinstance(each, Mapping)]
    parents = {node.get("parent") for node in nodes}
    leaves = [at for at in range(len(nodes)) if at not in parents]
    named = trace.get("rewards")
    rewards = (
        {name: _weighted(each) for name, each in named.items()}
        if isinstance(named, Mapping)
        else {}
    )
    known = [each for each in rewards.values() if each is not None]
    group, task = episode.get("group"), episode.get("task")
    facts = [(str(name), f"{value:g}") for name, value in rewards.items() if value is not None]
    facts += _facts({"stop": trace.get("stop_condition"), **_mapping(trace.get("metrics"))})
    found = []
    for at, leaf in enumerate(leaves):
        branch = [("branch", f"{at + 1} of {len(leaves)}")] if len(leaves) > 1 else []
        messages = tuple(_node(nodes[each], texts_of) for each in _way(nodes, leaf))
        advantages = {token.advantage for said in messages for token in said.tokens}
        found.append(
            Rollout(
                messages=messages,
                step=_step_of_run(episode, trace),
                group=_text(_mapping(group).get("id")) or _text(_mapping(task).get("key")),
                reward=sum(known) if known else _number(trace, *REWARD),
                advantage=advantages.pop() if len(advantages) == 1 else None,
                facts=(*facts, *branch),
            )
        )
    return found


def _way(nodes: Sequence[Mapping[str, Any]], leaf: int) -> list[int]:
    """The places of a last message and of all before it, the first one first."""
    way: list[int] = []
    at: Any = leaf
    while isinstance(at, int) and 0 <= at < len(nodes) and at not in way:
        way.append(at)
        at = nodes[at].get("parent")
    return way[::-1]


def _node(node: Mapping[str, Any], texts_of: TextsOf) -> Said:
    """A message with those of its tokens that the policy sampled: the mask has them, and the other lists are theirs."""
    said = _message(_mapping(node.get("message")), "user", texts_of)
    ids = zip(_items(node.get("token_ids")), _items(node.get("mask")), strict=False)
    sampled = [each for each, is_sampled in ids if is_sampled and isinstance(each, int)]
    values = (node.get(name) for name in ("logprobs", "reference_logprobs", "advantages"))
    tokens = _joined(texts_of(sampled), *values)
    return replace(said, tokens=tokens)


def _step_of_run(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> int | None:
    """The training step that verifiers or prime-rl stamped on an episode."""
    work = _mapping(_mapping(episode.get("run")).get("work"))
    info = _mapping(_mapping(trace.get("info")).get("prime_rl"))
    return next(
        (step for each in (work, info, episode) if (step := _whole(each, *STEP)) is not None), None
    )


def _weighted(reward: Any) -> float | None:
    """A reward of verifiers, which has a score and a weight, or is a number."""
    if not isinstance(reward, Mapping):
        return _finite(reward)
    score, weight = _number(reward, "score"), _number(reward, "weight")
    return None if score is None else score * (1.0 if weight is None else weight)


# Values


def ill_typed(record: Mapping[str, Any]) -> list[str]:
    """The fields of a record that hold no number although they should. A null, and a NaN, are no fault."""
    named = {name: record.get(name) for name in (*STEP, *REWARD)}
    return [
        name
        for name, value in named.items()
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float))
    ]


def _facts(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The other fields of a record that are short enough for a line."""
    facts = []
    for name, value in [*record.items(), *_mapping(record.get("metrics")).items()]:
        number = _finite(value)
        if name not in READ and (number is not None or (isinstance(value, str) and value)):
            facts.append((str(name), value if number is None else f"{number:g}"))
    return tuple(facts)


def _first(record: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these fields that a record has."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def _number(record: Mapping[str, Any], *names: str) -> float | None:
    return next((found for name in names if (found := _finite(record.get(name))) is not None), None)


def _whole(record: Mapping[str, Any], *names: str) -> int | None:
    number = _number(record, *names)
    return None if number is None else int(number)


def _finite(value: Any) -> float | None:
    """A number that is one; a truth value is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _items(value: Any) -> Sequence[Any]:
    """The items of a list; of anything else, none."""
    return value if isinstance(value, list | tuple) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
