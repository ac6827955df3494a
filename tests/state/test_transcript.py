"""The conversation as facts: streamed replies settle, old entries go, serial numbers only grow."""

from __future__ import annotations

from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeDropped,
    ObservationShown,
    TokensStreamed,
    TurnFinished,
)
from llamagym_tui.state.transcript import (
    MAX_ENTRIES,
    MAX_ENTRY,
    PAGE,
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


def test_a_turn_that_was_not_streamed_still_tells_its_reply():
    transcript = Transcript().after(finished("stick"))
    assert transcript.entries[0].fact == ReplySoFar(0, 0, "stick", done=True)


def test_another_turn_begins_another_reply():
    transcript = Transcript().after(streamed("a", turn=0)).after(streamed("b", turn=1))
    assert [entry.serial for entry in transcript.entries] == [0, 1]


def test_a_changed_reply_keeps_its_serial_and_unchanged_entries_their_identity():
    shown = ObservationShown(episode=0, turn=0, text="14")
    before = Transcript().after(shown).after(streamed("a"))
    after = before.after(streamed("b"))
    assert after.entries[0] is before.entries[0]
    assert after.entries[1].serial == before.entries[1].serial
    assert after.entries[1] is not before.entries[1]


def test_the_oldest_entries_go_first():
    transcript = Transcript()
    for turn in range(MAX_ENTRIES + 10):
        transcript = transcript.after(ObservationShown(episode=0, turn=turn, text="x"))
    assert len(transcript.entries) == MAX_ENTRIES - PAGE + 10
    assert transcript.entries[0].serial == PAGE


def test_long_texts_are_cut_and_say_so():
    transcript = Transcript().after(ObservationShown(episode=0, turn=0, text="x" * (MAX_ENTRY + 5)))
    assert transcript.entries[0].fact.text.endswith("x … (5 more characters)")


def test_a_reply_of_a_million_characters_stays_bounded():
    transcript = Transcript()
    for _ in range(100):
        transcript = transcript.after(streamed("x" * 10_000))
    assert len(transcript.entries[0].fact.text) < MAX_ENTRY + 100


def test_a_tail_has_the_last_entries():
    transcript = Transcript()
    for index in range(10 * PAGE + 3):
        transcript = transcript.note(str(index))
    tail = transcript.tail(100)
    assert tail.entries == transcript.entries[-100:]
    assert tail.note("x").entries[-1].serial == 10 * PAGE + 3
    assert tail.tail(100) is tail


def test_probed_actions_stand_in_the_conversation():
    probed = ActionsProbed(episode=0, turn=0, names=["stick", "hit"], shares=[0.25, 0.75])
    transcript = Transcript().after(probed)
    assert [entry.fact for entry in transcript.entries] == [probed]


def test_a_dropped_episode_ends_its_open_reply_and_gives_its_reason() -> None:
    transcript = Transcript().after(TokensStreamed(episode=7, turn=0, text="hi"))
    transcript = transcript.after(EpisodeDropped(episode=7, reason="the step failed"))
    reply, notice = (entry.fact for entry in transcript.entries)
    assert reply == ReplySoFar(7, 0, "hi", done=True)
    assert notice == Notice("Episode 7 was dropped: the step failed.")
