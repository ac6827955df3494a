"""Episodes of a run of ours, or of one that `LlamaGymWatch` writes, out of its event log.

Events are read as plain records, so that the log of an earlier version can be read, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from llamagym_tui.rollouts.rollout import Rollout, Said, Token


def episode_of(record: Mapping[str, Any]) -> Iterator[Rollout]:
    """The rollout that the events of an episode make up, up to its end; none if it has no turn."""
    events = record["episode_events"]
    messages: list[Said] = []
    inspected = {
        event.get("turn"): _tokens(event)
        for event in events
        if event.get("type") == "TurnInspected"
    }
    for event in events:
        match event:
            case {"type": "EpisodeStarted", "system_prompt": str(prompt)} if prompt:
                messages.append(Said("system", prompt))
            case {"type": "ObservationShown", "text": str(text)}:
                messages.append(Said("user", text))
            case {"type": "TurnFinished", "turn": int(turn)}:
                messages.append(_reply(event, inspected.get(turn, ())))
            case {"type": "EpisodeFinished", "episode": episode, "end": end} if messages:
                yield Rollout(
                    tuple(messages),
                    step=record.get("step"),
                    group=events[0].get("group", ""),
                    reward=event.get("episode_return"),
                    advantage=event.get("advantage"),
                    facts=(("episode", f"{episode}"), ("end", f"{end}")),
                )


def _reply(event: Mapping[str, Any], tokens: tuple[Token, ...]) -> Said:
    """A reply with what came of it."""
    reply, note = str(event.get("reply", "")), str(event.get("action_name", ""))
    probability = event.get("probability")
    if event.get("how") == "failed":
        note = "no action named"
    if isinstance(probability, float):
        note = f"{note} {probability:.0%}"
    elif reply.endswith(note):  # its own words are its action
        note = ""
    if event.get("replaced") is not None:
        note = f"{note}, chosen by a person"
    return Said("assistant", reply, reward=event.get("reward"), tokens=tokens, note=note)


def _tokens(event: Mapping[str, Any]) -> tuple[Token, ...]:
    """The tokens of a reply that was inspected."""
    found = []
    for token in event.get("tokens", ()):
        decision = token.get("decision", {})
        figures = (decision.get(name) for name in ("old", "ref", "advantage"))
        found.append(Token(token.get("text", ""), *figures))
    return tuple(found)
