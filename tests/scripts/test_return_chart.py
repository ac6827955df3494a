"""The chart has the points of the table in the results, and the picture in the documents is that chart."""

from __future__ import annotations

from scripts.return_chart import (
    LEFT,
    PICTURE,
    RESULTS,
    RIGHT,
    TABLE,
    TOP,
    WIDTH,
    Curve,
    chart,
    curves,
    x_of,
    y_of,
)

PAGE = f"""Before.

{TABLE} 1 min | 10 min | turns |
|---|---|---|---|
| this | −0.05 / −0.1 | 0 / −0.04 | 195,065 |
| TRL 1.16, GRPO | 0 / −0.15 | 0 / −0.2 | 46,129 |

After.
"""


def test_a_curve_has_the_sampled_return_of_each_time() -> None:
    assert curves(PAGE) == [
        Curve("this", [(1.0, -0.1), (10.0, -0.04)]),
        Curve("TRL 1.16, GRPO", [(1.0, -0.15), (10.0, -0.2)]),
    ]


def test_axes_begin_at_nothing_and_end_at_ten_minutes() -> None:
    assert (x_of(0), x_of(10)) == (LEFT, WIDTH - RIGHT)
    assert y_of(0) == TOP
    assert y_of(-0.1) == (TOP + y_of(-0.2)) / 2


def test_the_picture_of_the_documents_is_that_of_the_results() -> None:
    drawn = chart(curves(RESULTS.read_text(encoding="utf-8")))
    assert PICTURE.read_text(encoding="utf-8") == drawn, "run python -m scripts.return_chart"
