"""The conversation as facts: streamed replies settle, old entries go, serial numbers only grow."""

from __future__ import annotations

from llamagym_tui.protocol.events import (
    EpisodeDropped,
    ObservationShown,
    TokensStreamed,
    TurnFinished,
)
from llamagym_tui.state.transcript import (
    MAX_ENTRIES,
    MAX_ENTRY,
    Notice,
    ReplySoFar,
    Transcript,
)


def streamed(text: str, turn: int = 0) -> TokensStreamed:
    return TokensStreamed(episode=0, turn=turn, text=text)


def finished(reply: str, turn: int = 0) -> TurnFinished:
    return TurnFinished(
        episode=0, turn=turn, reply=reply, action=1, action_name="hit", how="json", reward=0.0
    )


def test_streamed_pieces_join_into_one_reply():
    transcript = Transcript().after(streamed('{"act')).after(streamed('ion": 1}'))
    assert [entry.fact for entry in transcript.entries] == [ReplySoFar(0, 0, '{"action": 1}')]


def test_the_whole_reply_replaces_what_was_streamed():
    transcript = Transcript().after(streamed('{"act')).after(finished('{"action": 1}'))
    assert transcript.entries[0].fact == ReplySoFar(0, 0, '{"action": 1}', done=True)
    assert isinstance(transcript.entries[1].fact, TurnFinished)


def test_the_oldest_entries_go_first():
    transcript = Transcript()
    for turn in range(MAX_ENTRIES + 10):
        transcript = transcript.after(ObservationShown(episode=0, turn=turn, text="x"))
    assert len(transcript.entries) == MAX_ENTRIES
    assert transcript.entries[0].serial == 10


def test_long_texts_are_cut_and_say_so():
    transcript = Transcript().after(ObservationShown(episode=0, turn=0, text="x" * (MAX_ENTRY + 5)))
    assert transcript.entries[0].fact.text.endswith("x … (5 more characters)")


def test_a_dropped_episode_ends_its_open_reply_and_gives_its_reason() -> None:
    transcript = Transcript().after(TokensStreamed(episode=7, turn=0, text="hi"))
    transcript = transcript.after(EpisodeDropped(episode=7, reason="the step failed"))
    reply, notice = (entry.fact for entry in transcript.entries)
    assert reply == ReplySoFar(7, 0, "hi", done=True)
    assert notice == Notice("Episode 7 was dropped: the step failed.")
