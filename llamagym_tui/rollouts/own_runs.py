"""Episodes of a run of ours, or of one that `LlamaGymWatch` writes, as records that `formats` reads.

Events are read as plain records, so that the log of an earlier version can be read, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.rollouts.rollout import Record


def episode_of(events: Sequence[Mapping[str, Any]]) -> Record:
    """The record of the episode that some events make up; an empty one if it has not ended."""
    messages: list[Record] = []
    inspected = {
        event.get("turn"): _tokens(event)
        for event in events
        if event.get("type") == "TurnInspected"
    }
    for event in events:
        match event.get("type"):
            case "EpisodeStarted" if event.get("system_prompt"):
                messages.append({"role": "system", "content": event["system_prompt"]})
            case "ObservationShown":
                messages.append({"role": "user", "content": event.get("text")})
            case "TurnFinished":
                messages.append({**_reply(event), **inspected.get(event.get("turn"), {})})
            case "EpisodeFinished":
                if event.get("episode_return") is None:  # nobody has rewarded it
                    messages = [{**each, "reward": None} for each in messages]
                return {
                    "messages": messages,
                    "group": events[0].get("group"),
                    "reward": event.get("episode_return"),
                    "advantage": event.get("advantage"),
                    "metrics": {"episode": f"{event.get('episode')}", "end": event.get("end")},
                }
    return {}


def _reply(event: Mapping[str, Any]) -> Record:
    """A reply with what came of it; nothing is noted where its own words are its action."""
    reply, note = str(event.get("reply", "")), str(event.get("action_name", ""))
    match event:
        case {"how": "failed"}:
            note = "no action named"
        case {"replaced": str()}:
            note += ", chosen by a person"
        case {"probability": float(probability)}:
            note += f" {probability:.0%}"
        case _ if reply.endswith(note):
            note = ""
    return {"role": "assistant", "content": reply, "reward": event.get("reward"), "note": note}


def _tokens(event: Mapping[str, Any]) -> Record:
    """The tokens of a reply that was inspected."""
    tokens = event.get("tokens", ())
    decisions = [each.get("decision", {}) for each in tokens]
    return {
        "tokens": [each.get("text") for each in tokens],
        "logprobs": [each.get("old") for each in decisions],
        "ref_logprobs": [each.get("ref") for each in decisions],
        "advantages": [each.get("advantage") for each in decisions],
    }
