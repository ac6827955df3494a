"""The curves of GRPO beside TRL's: rows of a third of the updates, worked by hand."""

from benchmarks.grpo_beside_trl import parts, table


def test_a_row_has_the_means_of_its_groups_over_all_seeds_and_how_sure_their_difference_is() -> (
    None
):
    ours = [[[1.0, 0.0]] * 3, [[0.0, 1.0]] * 3]
    trls = [[[0.5, 0.5]] * 3, [[0.5, 0.5]] * 3]
    rows = table({"ours": ours, "TRL": trls}, 3).splitlines()
    assert len(rows) == 5
    # Four groups: variance 1/3, so the standard error of their mean is sqrt(1/12), and 1.96 of that 0.566.
    cells = "1 to 128 | +0.500 ± 0.566 | +0.500 ± 0.000 | +0.000 ± 0.566"
    assert rows[2] == f"| {cells} |"


def test_every_update_is_in_one_row() -> None:
    assert parts(60) == [(0, 20), (20, 40), (40, 60)]
    assert parts(4) == [(0, 1), (1, 3), (3, 4)]
    assert parts(1) == [(0, 1)]
