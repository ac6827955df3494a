"""The curves of GRPO beside TRL's: rows of a sixth of the updates, worked by hand."""

from benchmarks.grpo_beside_trl import parts, table


def test_a_row_has_the_means_of_its_groups_over_all_seeds_and_how_sure_their_difference_is() -> (
    None
):
    ours = [[[1.0, 0.0]] * 6, [[0.0, 1.0]] * 6]
    trls = [[[0.5, 0.5]] * 6, [[0.5, 0.5]] * 6]
    rows = table({"ours": ours, "TRL": trls}, 6).splitlines()
    assert len(rows) == 8
    # Four groups: variance 1/3, so the standard error of their mean is sqrt(1/12), and 1.96 of that 0.566.
    cells = "1 to 128 | +0.500 ± 0.566 | +0.500 ± 0.000 | +0.000 ± 0.566"
    assert rows[2] == f"| {cells} |"


def test_updates_that_are_not_divided_by_six_are_in_one_row_each() -> None:
    assert parts(4) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert parts(60)[-1] == (50, 60)
