"""A search that goes on while entries come and go, and the lines in which they stand; no widget."""

from __future__ import annotations

import random

from llamagym_tui.screens.conversation.text_search import MAX_MATCHES, Match, TextSearch
from llamagym_tui.screens.conversation.typesetting import LineIndex


class Pages:
    """Entries by serial, and which of them were looked through."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts, self.asked = texts, list[int]()

    def __call__(self, serial: int) -> list[str]:
        self.asked.append(serial)
        return [self.texts[serial]]


def pages(count: int, *hits: int) -> Pages:
    return Pages({serial: "a hit" if serial in hits else "nothing" for serial in range(count)})


def test_the_first_match_is_the_last_one_before_the_place_where_the_search_began():
    search = TextSearch("HIT", 6)
    search.look(0, 9, pages(10, 2, 5, 8))
    assert search.current == Match(5, 0)
    assert search.status == "2 of 3"


def test_steps_go_around_in_a_circle():
    search, seen = TextSearch("hit", 6), []
    search.look(0, 9, pages(10, 2, 5, 8))
    for by in (-1, -1, -1, 1):
        search.step(by)
        assert search.current is not None
        seen.append(search.current.serial)
    assert seen == [2, 8, 5, 8]


def test_nothing_is_looked_through_twice():
    search, texts = TextSearch("hit", 9), pages(10, 1)
    search.look(0, 7, texts)
    search.look(0, 9, texts)
    search.look(0, 9, texts)
    assert sorted(texts.asked) == list(range(10))
    assert search.current == Match(1, 0)


def test_a_longer_text_is_looked_for_where_the_shorter_one_was_found_and_in_what_came_since():
    texts = Pages({0: "hit", 1: "hits", 2: "no", 3: "hits"})
    before = TextSearch("hit", 9)
    before.look(0, 2, texts)
    texts.asked.clear()
    longer = TextSearch("hits", 9, before)
    longer.look(0, 3, texts)
    assert texts.asked == [3, 1, 0]
    assert (longer.current, longer.status) == (Match(3, 0), "2 of 2")
    other = TextSearch("no", 9, before)
    other.look(0, 3, texts)
    assert other.current == Match(2, 0)


def test_a_match_after_the_place_is_taken_only_when_there_is_none_before():
    search = TextSearch("hit", 4)
    search.look(0, 9, pages(10, 7, 9))
    assert search.current == Match(7, 0)


def test_what_comes_later_is_found_too_and_the_current_match_stays():
    search, texts = TextSearch("hit", 3), pages(4, 2)
    search.look(0, 3, texts)
    texts.texts[4] = "hit and hit"
    search.look(0, 4, texts)
    assert (search.current, search.status) == (Match(2, 0), "1 of 3")
    search.step(1)
    search.step(1)
    assert search.current == Match(4, 1)


def test_matches_in_entries_that_were_let_go_are_forgotten():
    search, texts = TextSearch("hit", 6), pages(10, 1, 5, 8)
    search.look(0, 9, texts)
    search.look(6, 9, texts)
    assert (search.current, search.status) == (Match(8, 0), "1 of 1")
    search.look(9, 9, texts)
    assert (search.current, search.status) == (None, "no match")


def test_of_a_conversation_that_goes_back_the_end_is_forgotten_and_searched_again():
    search = TextSearch("hit", 9)
    search.look(0, 9, pages(10, 1, 8))
    search.look(0, 5, pages(6, 1))
    assert (search.current, search.status) == (Match(1, 0), "1 of 1")
    search.look(0, 9, pages(10, 1, 7))
    assert search.status == "1 of 2"


def test_a_text_without_a_match_says_so():
    search = TextSearch("[/", 2)
    search.look(0, 2, pages(3))
    search.step(1)
    assert (search.current, search.status) == (None, "no match")


def test_matches_are_counted_up_to_a_bound():
    search = TextSearch("x", 99)
    search.look(0, 99, Pages(dict.fromkeys(range(100), "x" * 500)))
    assert MAX_MATCHES <= len(search) < MAX_MATCHES + 500
    assert search.status.endswith("+")


def test_an_index_agrees_with_a_plain_list():
    rng, index, plain, dropped = random.Random(5), LineIndex(), list[int](), 0
    for _ in range(400):
        match rng.randrange(5) if plain else 0:
            case 0 | 1:
                plain.append(rng.randrange(1, 6))
                index.add(plain[-1])
            case 2:
                plain.pop()
                index.drop_last()
            case 3:
                gone = rng.randrange(min(3, len(plain)) + 1)
                dropped += sum(plain[:gone])
                del plain[:gone]
                index.drop_first(gone)
            case _:
                plain[-1] = rng.randrange(1, 6)
                index.drop_last()
                index.add(plain[-1])
        assert (len(index), index.first, index.end) == (len(plain), dropped, dropped + sum(plain))
        for at in range(len(plain)):
            assert index.start(at) == dropped + sum(plain[:at])
            assert index.find(index.start(at)) == index.find(index.start(at) + plain[at] - 1) == at
