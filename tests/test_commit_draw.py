"""The part of expensive test families that a commit runs."""

from __future__ import annotations

from support.commit_draw import PARTS, drawn

TESTS = [f"tests/{file}.py::test[{number}]" for file in ("a", "b") for number in range(3 * PARTS)]


def test_commit_always_draws_the_same_part_of_each_file() -> None:
    once = drawn(TESTS, "commit")
    assert once == drawn(TESTS, "commit")
    for file in ("a", "b"):
        assert len([test for test in once if test.startswith(f"tests/{file}.py")]) == 3


def test_builds_draw_different_parts() -> None:
    assert not drawn(TESTS, "commit") & drawn(TESTS, "commit", "compiled")


def test_commits_draw_every_test_between_them() -> None:
    assert {test for number in range(50) for test in drawn(TESTS, f"commit {number}")} == set(TESTS)


def test_file_with_fewer_tests_than_parts_is_drawn_at_times() -> None:
    draws = [len(drawn(["tests/a.py::test"], f"commit {number}")) for number in range(50)]
    assert set(draws) == {0, 1}
