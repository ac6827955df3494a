"""The filmstrip of a run: some of its policy maps, in bounded memory; the first and the newest always stay."""

from llamagym_tui.protocol.events import PolicyMapped

MAX_FRAMES = 40


def with_frame(film: tuple[PolicyMapped, ...], mapped: PolicyMapped) -> tuple[PolicyMapped, ...]:
    """The film with another map at its end; maps of updates that were undone, or are made again, go."""
    frames = [*(frame for frame in film if frame.update < mapped.update), mapped]
    if len(frames) > MAX_FRAMES:  # the one goes of which the neighbours are the nearest
        del frames[min(range(1, MAX_FRAMES), key=lambda at: frames[at + 1].update - frames[at - 1].update)]
    return tuple(frames)
