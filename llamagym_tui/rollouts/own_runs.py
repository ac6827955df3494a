"""Episodes of a run of ours, or of one that `LlamaGymWatch` writes, out of its event log.

Events are read as plain records, so that the log of an earlier version can be read, too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from llamagym_tui.rollouts.rollout import Rollout, Said, Token


def episode_of(events: Iterable[Mapping[str, Any]]) -> Rollout | None:
    """The rollout that the events of one episode make up; None if they hold no turn."""
    messages: list[Said] = []
    tokens: dict[int, tuple[Token, ...]] = {}
    total: float | None = None
    advantage: float | None = None
    group = ""
    facts: dict[str, str] = {}
    for event in events:
        match event.get("type"):
            case "EpisodeStarted":
                if prompt := event.get("system_prompt"):
                    messages.append(Said("system", str(prompt)))
                group = event.get("group", "")
                facts["episode"] = str(event.get("episode", ""))
            case "ObservationShown":
                messages.append(Said("user", str(event.get("text", ""))))
            case "TurnFinished":
                messages.append(_reply(event))
            case "TurnInspected":
                tokens[event.get("turn", 0)] = _tokens(event)
            case "EpisodeFinished":
                total = event.get("episode_return")
                advantage = event.get("advantage")
                facts["end"] = str(event.get("end", ""))
    turn = 0
    for at, each in enumerate(messages):
        if each.role == "assistant":
            own = tokens.get(turn, ())
            messages[at] = replace(each, tokens=own)
            turn += 1
    if not turn:
        return None
    return Rollout(
        tuple(messages),
        group=group,
        reward=total,
        advantage=advantage,
        facts=tuple(facts.items()),
    )


def _reply(event: Mapping[str, Any]) -> Said:
    """A reply with what came of it."""
    action, probability = str(event.get("action_name", "")), event.get("probability")
    reply = str(event.get("reply", ""))
    note = "no action named" if event.get("how") == "failed" else action
    if isinstance(probability, float):
        note = f"{note} {probability:.0%}"
    elif reply.endswith(note):  # its own words are its action
        note = ""
    if event.get("replaced") is not None:
        note = f"{note}, chosen by a person"
    return Said("assistant", reply, reward=event.get("reward"), note=note)


def _tokens(event: Mapping[str, Any]) -> tuple[Token, ...]:
    """The tokens of a reply that was inspected."""
    found = []
    for token in event.get("tokens", ()):
        decision = token.get("decision", {})
        found.append(
            Token(
                token.get("text", ""),
                decision.get("old"),
                decision.get("ref"),
                decision.get("advantage"),
            )
        )
    return tuple(found)
