"""Search over all that was said."""

import json

import pytest

from llamagym_tui.errors import UsageError
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.search import Pattern, search


@pytest.fixture
def rollouts(tmp_path):
    texts = ["I hit. \x1b[2JThen I stick.", "Stick\nnow", "nothing", "(a|b) is literal"]
    lines = [json.dumps({"prompt": "Play.", "completion": each}) + "\n" for each in texts]
    (tmp_path / "1.jsonl").write_text("".join(lines))
    found = Rollouts(str(tmp_path))
    while found.read_on():
        pass
    return found


def places(rollouts, text):
    found = search(rollouts, rollouts.entries, Pattern(text))
    return [rollouts.entries.index(each.entry) for each in found if each]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("stick", [0, 1]),
        ("Stick", [1]),
        ("play", [0, 1, 2, 3]),
        ("(a|b)", [3]),
        (r"/stick\s+now/", [1]),
        ("/^(a|n)/", [2]),
        ("absent", []),
    ],
)
def test_search(rollouts, text, wanted):
    assert places(rollouts, text) == wanted


def test_what_surrounds_a_match(rollouts):
    found = next(filter(None, search(rollouts, rollouts.entries, Pattern("stick"))))
    assert found.words[found.start : found.stop] == "stick"
    assert found.words == "[2JThen I stick.", "ten characters before it"
    (lines,) = filter(None, search(rollouts, rollouts.entries, Pattern("Stick")))
    assert lines.words == "Stick now"


def test_what_is_no_regular_expression():
    with pytest.raises(UsageError, match="/\\(/ is no regular expression"):
        Pattern("/(/")


def test_a_regular_expression_that_takes_for_ever():
    with pytest.raises(UsageError, match="takes too long"):
        Pattern("/(a|aa|aaa)+$/").find("a" * 5_000 + "b")


def test_a_rollout_that_cannot_be_read_is_passed_over(rollouts, tmp_path):
    (tmp_path / "1.jsonl").unlink()
    assert places(rollouts, "stick") == []
