"""Users, rules, quotas and pipelines in the console, used as a person uses it. Skipped without a browser."""

from __future__ import annotations

from typing import Any


def test_right_is_asked_for_with_the_deciding_rule(page: Any) -> None:
    page.goto(page.base + "#/access?tab=rules")
    page.get_by_role("button", name="Add rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill("ann")
    dialog.get_by_role("textbox", name="Name").fill("orders")
    dialog.get_by_role("button", name="Add", exact=True).click()
    dialog.wait_for(state="detached")
    page.get_by_role("textbox", name="User").fill("ann")
    page.get_by_role("textbox", name="Resource name").fill("orders")
    page.get_by_role("button", name="?").last.click()
    page.get_by_text("yes").wait_for()
    page.get_by_role("textbox", name="User").fill("bob")
    page.get_by_role("button", name="?").last.click()
    page.get_by_text("no", exact=True).wait_for()


def test_token_of_a_user_is_created_and_revoked(page: Any) -> None:
    page.goto(page.base + "#/access")
    page.get_by_role("link", name="ann").click()
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Purpose").fill("build server")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("pst_").wait_for()
    page.get_by_role("button", name="I have copied it").click()
    page.get_by_text("build server").wait_for()
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke the token").click()
    page.get_by_text("The user has no access tokens.").wait_for()


def test_quota_is_set_changed_and_removed(page: Any) -> None:
    page.goto(page.base + "#/access?tab=quotas")
    page.get_by_role("button", name="Set quotas").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill("ann")
    dialog.get_by_label("Bytes per second that producers may write").fill("4096")
    assert "penstock quota set --user ann producer_byte_rate=4096" in dialog.text_content()
    dialog.get_by_role("button", name="Set", exact=True).click()
    page.get_by_role("cell", name="user ann", exact=True).wait_for()
    page.get_by_role("button", name="Change", exact=True).click()
    dialog.get_by_label("Bytes per second that producers may write").fill("8192")
    dialog.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("8,192").wait_for()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove the quotas").click()
    page.get_by_text("There are no quotas.").wait_for()


def test_pipeline_is_declared_and_its_problems_are_named(page: Any) -> None:
    page.watch.allowed = ("400",)
    page.goto(page.base + "#/pipelines")
    page.get_by_role("button", name="Declare pipeline").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("copies")
    dialog.get_by_label("Definition").fill('{"source": {"topics": ["orders"]}}')
    dialog.get_by_role("button", name="Declare").click()
    dialog.get_by_role("alert").wait_for()
    dialog.get_by_label("Definition").fill(
        '{"source": {"topics": ["orders"]}, "target": {"topic": "copies"}}'
    )
    dialog.get_by_role("button", name="Declare").click()
    page.get_by_role("heading", name="copies").wait_for()
    page.get_by_text("waiting for a supervisor").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
