"""Branches on disk: which checkpoints are kept, what `--from` names, what a branch is made of."""

from pathlib import Path

import pytest

from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.runs.branch import branch_point, discard_surplus, kept_updates
from llamagym_tui.runs.run_store import RunStore, has_checkpoint, is_run, read_config
from llamagym_tui.settings.typed import assigned
from llamagym_tui.setup.run_config import run_config, with_run_dir


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"LLAMAGYM_TUI_{kind}", str(tmp_path / kind))
    return tmp_path / "DATA" / "runs"


@pytest.fixture
def parent(home: Path) -> Path:
    """A run of Blackjack that has kept the checkpoints of updates 3 and 12."""
    config = run_config(
        "blackjack",
        {"run_dir": str(home / "parent"), **assigned(["ppo.lr=1e-4", "n_envs=7"]), "seed": 5},
    )
    store = RunStore.create(config)
    store.close()
    for update in (3, 12):
        (home / "parent" / f"update-{update}").mkdir()
        (home / "parent" / f"update-{update}" / "model.safetensors").write_text(f"weights {update}")
    return home / "parent"


def test_of_checkpoints_those_are_kept_that_lie_far_apart_with_the_first_and_the_latest(
    tmp_path: Path,
) -> None:
    kept = {}
    for update in range(1, 41):
        (tmp_path / f"update-{update}").mkdir()
        discard_surplus(tmp_path, 4)
        kept[update] = kept_updates(tmp_path)
    assert [kept[update] for update in (4, 5, 10, 20, 40)] == [
        [1, 2, 3, 4], [1, 3, 4, 5], [1, 5, 8, 10], [1, 8, 14, 20], [1, 14, 26, 40],
    ]  # fmt: skip
    discard_surplus(tmp_path, 1)
    assert kept_updates(tmp_path) == [40]


@pytest.mark.parametrize(("spec", "update"), [("parent@3", 3), ("parent", 12), ("@3", 3)])
def test_a_branch_is_named_by_run_and_update_or_leaves_its_run_where_it_can_last(
    parent, spec, update
) -> None:
    assert branch_point(spec) == f"{parent}@{update}"


def test_an_update_that_is_not_kept_is_refused_with_those_that_are(parent: Path) -> None:
    with pytest.raises(UsageError, match=r"of update 4; it has 3, 12\."):
        branch_point("parent@4")
    with pytest.raises(UsageError, match="There is no run nobody;"):
        branch_point("nobody@3")


def test_a_branch_has_its_parents_settings_but_for_those_given_and_knows_its_parent(
    parent: Path,
) -> None:
    config = run_config(
        None, {"parent": "parent@3", **assigned(["ppo.lr=1e-2"]), "system_prompt": "Never hit."}
    )
    assert (config.seed, config.n_envs, config.ppo.lr, config.system_prompt) == (
        5,
        7,
        1e-2,
        "Never hit.",
    )
    assert (config.parent, config.origin) == (f"{parent}@3", "branch of parent at update 3")


def test_a_branch_is_a_run_of_its_own_with_its_parents_files(parent: Path) -> None:
    (parent / "update-3" / "start").mkdir()
    (parent / "update-3" / "start" / "value_head.safetensors").write_text("before")
    config = with_run_dir(run_config(None, {"parent": "parent@3"}))
    folder = Path(config.run_dir)
    assert config.resume
    assert is_run(folder)
    assert has_checkpoint(folder)
    assert read_config(folder) == config
    assert folder.parent == parent.parent
    assert folder != parent
    model = folder / "model" / "model.safetensors"
    assert model.read_text() == "weights 3"
    assert model.samefile(parent / "update-3" / "model.safetensors"), "no room is taken"
    assert [path.name for path in (folder / "model").iterdir()] == ["model.safetensors"]
    assert (folder / "start" / "value_head.safetensors").read_text() == "before"
    assert read_config(parent).parent is None
    assert kept_updates(parent) == [3, 12]


def test_a_branch_never_takes_the_folder_of_another_run(parent: Path) -> None:
    with pytest.raises(RunStoreError, match="already holds a run"):
        with_run_dir(run_config(None, {"run_dir": str(parent), "parent": "parent@3"}))
    assert read_config(parent).parent is None


@pytest.mark.parametrize("other", [("cart_pole", {}), (None, {"model": "smollm2"})])
def test_a_branch_of_another_agent_or_model_is_refused_before_a_folder_is_made(
    parent, home, other
) -> None:
    with pytest.raises(RunStoreError, match=r"has (agent|model) \w+, not"):
        run_config(other[0], {"parent": "parent@3", **other[1]})
    assert [path.name for path in home.iterdir()] == ["parent"]


def test_a_run_is_resumed_or_branched_off_not_both(parent: Path) -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        run_config(None, {"run_dir": str(parent), "resume": True, "parent": "parent@3"})
