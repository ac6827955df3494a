"""Records of other trainers as rollouts. What a record is, its keys say; values of another type count as not there.

Sources of the formats:

- verl: ``_dump_generations`` of its trainers: ``input``, ``output``, ``score``, ``step`` and more.
- TRL: the table of ``GRPOTrainer.log``: ``step``, ``prompt``, ``completion``, a column for each reward, ``advantage``.
- verifiers and prime-rl: an ``Episode`` or a ``Trace`` with its graph of messages; before that, rows with ``prompt``,
  ``completion``, ``reward``, ``example_id`` and ``trajectory``.
- anything else with ``messages``, or with ``prompt`` and ``completion``; several of these in ``rollouts``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from msgspec.structs import replace

from llamagym_tui.rollouts.rollout import Record, Rollout, Said, Token

TextsOf = Callable[[Sequence[int]], list[str]]
"""The text of each token, from their ids."""

STEP = ("step", "global_step", "training_step")
GROUP = ("group", "group_id", "example_id", "prompt_id")
REWARD = ("reward", "score", "return", "episode_return")
PROMPT = ("prompt", "input")
COMPLETION = ("completion", "output")
IDS = ("token_ids", "completion_ids", "response_ids")
LOGPROBS = ("logprobs", "log_probs", "old_logprobs", "old_log_probs", "completion_logprobs")
REFERENCE = ("reference_logprobs", "ref_logprobs", "ref_log_probs")
THOUGHT = ("reasoning_content", "reasoning", "thinking")
READ = {
    *(*STEP, *GROUP, *REWARD, *PROMPT, *COMPLETION, *IDS, *LOGPROBS, *REFERENCE),
    *("messages", "tokens", "advantage", "advantages"),
}
"""Fields that are shown in their own place."""
MOST = 1e100
"""From here on a number is a fault of whoever wrote it: its square is none."""
NO_NUMBER = (bool, str, list, dict)
"""What may stand in a file where a number should."""


def rollouts_of(record: Mapping[str, Any], texts_of: TextsOf) -> list[Rollout]:
    """The rollouts of a record; none if it is of no known format."""
    found = []
    for each in _plain(record):
        if said := _conversation(each, texts_of):
            found.append(
                Rollout(
                    messages=tuple(said),
                    step=_step(each),
                    group=_text(_first(each, *GROUP)),
                    reward=_reward(each, said),
                    advantage=_number(each, "advantage", "advantages"),
                    facts=_facts({**each, **_inside(each, "metrics")}),
                )
            )
    return found


def _plain(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The records in a record that have one conversation each."""
    for each in _records(_first(record, "traces", "rollouts")) or [record]:
        if "nodes" in each:
            yield from _branches(each, record)
        else:
            yield each


def _reward(record: Mapping[str, Any], said: Sequence[Said]) -> float | None:
    """The reward of a record; else the sum of its parts.

    TRL's table names no sum, and has no weights.
    """
    found = _number(record, *REWARD)
    if found is not None:
        return found
    parts = [each.reward for each in said if each.reward is not None]
    parts += [value for name in summed(record) if (value := _number(record, name)) is not None]
    return sum(parts) if parts else None


def summed(record: Mapping[str, Any]) -> list[str]:
    """The columns of TRL's table that are its rewards; none if the record names its reward."""
    found = []
    for each in _records(record.get("rollouts")) or [record]:
        is_row = "completion" in each and "advantage" in each
        if is_row and _number(each, *REWARD) is None:
            names = (name for name, value in each.items() if isinstance(value, float))
            found += [name for name in names if name not in READ]
    return found


# Conversations


def _conversation(record: Mapping[str, Any], texts_of: TextsOf) -> list[Said]:
    """The messages of a record, and their tokens."""
    said = _messages(record.get("messages"), "user", texts_of)
    if not said:
        said = _messages(_first(record, *COMPLETION), "assistant", texts_of)
        if not said:
            return []
        said = _messages(_first(record, *PROMPT), "prompt", texts_of) + said
    # verifiers' rows have a trajectory, with the tokens of each turn; other records have those of the last reply.
    turns = [_inside(each, "tokens") for each in _records(record.get("trajectory"))] or [record]
    own = [at for at, each in enumerate(said) if each.role == "assistant"]
    for at, turn in zip(own[-len(turns) :], turns, strict=False):
        if tokens := _tokens(turn, texts_of):
            said[at] = replace(said[at], tokens=tokens)
    return said


def _messages(value: Any, role: str, texts_of: TextsOf) -> list[Said]:
    """Messages as they stand in a file: a text of a role, or a list of messages."""
    if isinstance(value, str):
        return [Said(role, value)]
    return [_message(each, role, texts_of) for each in _records(value)]


def _message(message: Mapping[str, Any], role: str, texts_of: TextsOf) -> Said:
    """A message. Its content may come in parts; a thought that is kept apart is put back where it was thought."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    for part in _records(content):
        parts.append(_text(part.get("text")) or f"[{_text(part.get('type'))}]")
    if thought := _text(_first(message, *THOUGHT)):
        parts.insert(0, f"<think>{thought}</think>")
    return Said(
        role=_text(message.get("role")) or role,
        text="\n".join(parts),
        calls=tuple(_call(each) for each in _items(message.get("tool_calls"))),
        reward=_number(message, "reward"),
        tokens=_tokens(message, texts_of),
        note=_text(message.get("note")),
    )


def _call(call: Any) -> str:
    """A call of a tool, as ``name(arguments)``; older rows of verifiers have it as a text."""
    if not isinstance(call, Mapping):
        return _text(call)
    named = _inside(call, "function") or call
    return f"{_text(named.get('name'))}({_text(named.get('arguments'))})"


# Tokens


def _tokens(holder: Mapping[str, Any], texts_of: TextsOf) -> tuple[Token, ...]:
    """The tokens of a record or a message; none if it has neither their ids nor their texts."""
    if told := _records(_inside(holder, "logprobs").get("content")):  # as OpenAI's endpoints do
        return tuple(Token(_text(each.get("token")), _number(each, "logprob")) for each in told)
    texts = [_text(each) for each in _items(holder.get("tokens"))]
    ids = _items(_first(holder, *IDS))
    if not texts and all(isinstance(each, int) for each in ids):
        texts = texts_of(ids)
    if not texts:
        return ()
    listed = (_first(holder, *names) for names in (LOGPROBS, REFERENCE, ("advantages",)))
    columns = [[*map(_finite, _items(each)), *(None for _ in texts)] for each in listed]
    return tuple(map(Token, texts, *columns))


# The message graph of verifiers


def _branches(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A record for each way from the first message to a last one. What leads there is shared by several."""
    nodes = _records(trace.get("nodes"))
    parents = {node.get("parent") for node in nodes}
    leaves = [at for at in range(len(nodes)) if at not in parents]
    rewards = {name: _weighted(each) for name, each in _inside(trace, "rewards").items()}
    known = [each for each in rewards.values() if each is not None]
    stamps = {**episode, **_inside(trace, "info", "prime_rl"), **_inside(episode, "run", "work")}
    facts = {**rewards, "stop": trace.get("stop_condition"), **_inside(trace, "metrics")}
    for number, leaf in enumerate(leaves, 1):
        if len(leaves) > 1:
            facts["branch"] = f"{number} of {len(leaves)}"
        messages = _way(nodes, leaf)
        advantages = {
            _finite(value) for each in messages for value in _items(each.get("advantages"))
        }
        yield {
            "messages": messages,
            "advantage": advantages.pop() if len(advantages) == 1 else None,
            "step": _first(stamps, *STEP),
            "group": _inside(episode, "group").get("id") or _inside(episode, "task").get("key"),
            "reward": sum(known) if known else _first(trace, *REWARD),
            "metrics": facts,
        }


def _way(nodes: Sequence[Mapping[str, Any]], leaf: Any) -> list[Record]:
    """A last message and all before it, the first one first. A message stands after its parent.

    Each has those of its tokens that the policy sampled: the mask has them, and the other lists are theirs.
    """
    way: list[Record] = []
    before, at = len(nodes), leaf
    while isinstance(at, int) and 0 <= at < before:
        node = nodes[at]
        sampled = compress(_items(node.get("token_ids")), _items(node.get("mask")))
        way.insert(0, {**node, **_inside(node, "message"), "token_ids": [*sampled]})
        before, at = at, node.get("parent")
    return way


def _weighted(reward: Any) -> float | None:
    """A reward of verifiers, which has a score and a weight, or is a number."""
    if not isinstance(reward, Mapping):
        return _finite(reward)
    score, weight = _number(reward, "score"), _number(reward, "weight")
    return score if score is None or weight is None else score * weight


# Values


def ill_typed(record: Mapping[str, Any]) -> list[str]:
    """The fields of a record that hold no number although they should. A null, and a NaN, are no fault."""
    return [each for each in (*STEP, *REWARD) if isinstance(record.get(each), NO_NUMBER)]


def _facts(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Other fields that are short enough for a line."""
    facts = []
    for name, value in values.items():
        number = _finite(value)
        if number is not None:
            value = f"{number:g}"
        if isinstance(value, str) and value and name not in READ:
            facts.append((str(name), value))
    return tuple(facts)


def _first(record: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these fields that a record has."""
    for name in names:
        value = record.get(name)
        if value is not None:
            return value
    return None


def _number(record: Mapping[str, Any], *names: str) -> float | None:
    return _finite(_first(record, *names))


def _step(record: Mapping[str, Any]) -> int | None:
    number = _number(record, *STEP)
    return None if number is None else int(number)


def _finite(value: Any) -> float | None:
    """A number below `MOST`; a truth value and a NaN are none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < MOST else None


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _items(value: Any) -> Sequence[Any]:
    """The items of a list; of anything else, none."""
    return value if isinstance(value, list | tuple) else ()


def _records(value: Any) -> list[Mapping[str, Any]]:
    """The records in a list."""
    return [each for each in _items(value) if isinstance(each, Mapping)]


def _inside(record: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The record in a field of a record, or deeper; an empty one if there is none."""
    for name in names:
        inner = record.get(name)
        record = inner if isinstance(inner, Mapping) else {}
    return record
