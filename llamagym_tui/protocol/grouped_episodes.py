"""Many episodes that were counted at once, as a log has them: each return and length once, with its number.

Their order within the event, a fraction of a second, is not kept; read again they are in one that is drawn at
random, the same each time.
"""

import random
from collections import Counter

from msgspec.structs import replace

from llamagym_tui.protocol.events import EpisodesCounted

FEWEST = 32
"""Episodes from which on they are grouped; fewer keep their order."""
MOST = 2**20
"""Episodes of one event that is read."""


def grouped(event: EpisodesCounted) -> EpisodesCounted:
    """The same with `counts`, where that is shorter."""
    pairs = Counter(zip(event.returns, event.lengths, strict=True))
    if len(event.returns) < FEWEST or 2 * len(pairs) > len(event.returns):
        return event
    returns, lengths = map(list, zip(*pairs, strict=True))
    return replace(event, returns=returns, lengths=lengths, counts=list(pairs.values()))


def apart(event: EpisodesCounted) -> EpisodesCounted:
    """The same with each episode by itself.

    Raises:
        ValueError: the numbers do not belong together, or are too many.
    """
    if not event.counts:
        return event
    if min(event.counts) < 1 or sum(event.counts) > MOST:
        raise ValueError("it counts more episodes than can be")
    pairs = zip(event.returns, event.lengths, event.counts, strict=True)
    each = [(value, length) for value, length, count in pairs for _ in range(count)]
    random.Random(event.episodes).shuffle(each)
    return replace(event, returns=[value for value, _ in each], lengths=[length for _, length in each], counts=[])
