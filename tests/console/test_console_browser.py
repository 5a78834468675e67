"""The console in a browser, used as a person uses it. Skipped without Chromium or Playwright."""

from __future__ import annotations

from typing import Any

import httpx

from support.broker_process import BrokerProcess


def test_topic_is_found_by_keyboard_among_many(page: Any) -> None:
    page.goto(page.base + "#/topics")
    page.get_by_role("link", name="metrics-000").wait_for()
    assert page.locator("tbody tr").count() < 60, "the table is windowed"
    page.keyboard.press("/")
    page.keyboard.type("metrics 299")
    page.get_by_role("link", name="metrics-299").wait_for()
    assert "search=metrics+299" in page.url
    page.get_by_role("link", name="metrics-299").click()
    page.get_by_role("heading", name="metrics-299").wait_for()
    page.get_by_text("There are no messages.").wait_for()


def test_jump_opens_a_topic(page: Any) -> None:
    page.goto(page.base)
    page.get_by_text("All is well").wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Topic, group or page").fill("order")
    page.get_by_role("option", name="orders topic").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="orders").wait_for()


def test_message_is_searched_opened_and_sent_again(page: Any) -> None:
    page.goto(page.base + "#/topics/orders?from=search&q=json%3A%24.user.id%3Du123")
    page.get_by_text("1 found in 500 messages").wait_for()
    page.locator("tbody a").first.click()
    page.get_by_text('"u123"').wait_for()
    page.get_by_role("button", name="Send again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.goto(page.base + "#/topics/orders?from=search&q=key%3Ak123")
    page.get_by_text("2 found in 501 messages").wait_for()


def test_tail_shows_a_message_as_it_is_written(page: Any, broker: BrokerProcess) -> None:
    page.goto(page.base + "#/topics/metrics-001?from=tail")
    page.get_by_text("Following the topic.").wait_for()
    message = {"messages": [{"value": "fresh from the press"}]}
    httpx.post(
        f"http://127.0.0.1:{broker.http_port}/v1/topics/metrics-001/messages", json=message
    ).raise_for_status()
    page.get_by_text("fresh from the press").wait_for()


def test_group_is_reset_with_before_and_after(page: Any) -> None:
    page.goto(page.base + "#/groups/billing")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Move to").select_option("latest")
    dialog.get_by_role("cell", name="+").first.wait_for()
    assert "penstock group reset billing" in dialog.text_content()
    dialog.get_by_role("button", name="Reset", exact=True).click()
    dialog.wait_for(state="detached")
    page.locator(".card-value", has_text="0").first.wait_for()


def test_topic_is_deleted_only_after_its_name_is_typed(page: Any) -> None:
    page.goto(page.base + "#/topics/metrics-042")
    page.get_by_role("button", name="Delete topic").click()
    dialog = page.get_by_role("dialog")
    delete = dialog.get_by_role("button", name="Delete the topic")
    assert delete.is_disabled()
    dialog.get_by_label("Type metrics-042 to confirm").fill("metrics-042")
    delete.click()
    page.get_by_role("heading", name="Topics").wait_for()
    page.get_by_label("Search topics").fill("metrics-042")
    page.get_by_text("No topic has this name.").wait_for()


def test_setting_is_changed_and_a_wrong_value_explained(page: Any) -> None:
    page.watch.allowed = ("400",)
    page.goto(page.base + "#/topics/orders?tab=settings")
    page.get_by_label("Search settings").fill("retention.ms")
    page.get_by_role("button", name="Change", exact=True).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("soon")
    dialog.get_by_role("button", name="Change", exact=True).click()
    dialog.get_by_role("alert").wait_for()
    dialog.get_by_label("Value").fill("3600000")
    dialog.get_by_role("button", name="Change", exact=True).click()
    dialog.wait_for(state="detached")
    page.get_by_text("set here").first.wait_for()


def test_dead_letter_is_redriven_to_its_queue(page: Any) -> None:
    page.goto(page.base + "#/queues")
    page.get_by_role("link", name="jobs", exact=True).first.click()
    page.get_by_text("onerror=alert(1)").wait_for()
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_text("broken").wait_for()
    page.get_by_role("button", name="Redrive").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Count them first").click()
    dialog.get_by_text("1 messages would be sent to jobs.").wait_for()
    dialog.get_by_role("button", name="Redrive").click()
    dialog.wait_for(state="detached")
    page.get_by_text("There are no dead letters.").wait_for()
    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_text("broken").wait_for()


def test_view_is_created_after_its_filter_was_tried(page: Any) -> None:
    page.goto(page.base + "#/views")
    page.get_by_role("button", name="Create view").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("orders.late")
    dialog.get_by_label("Topic").fill("orders")
    dialog.get_by_label("Filter").fill("json.id >=")
    dialog.get_by_role("button", name="Try the filter").click()
    dialog.get_by_text("line 1, column").wait_for()
    page.watch.allowed = (*page.watch.allowed, "400 (Bad Request)")
    page.watch.complaints.clear()
    dialog.get_by_label("Filter").fill("json.id >= 490.0")
    dialog.get_by_role("button", name="Try the filter").click()
    dialog.get_by_text("messages match").wait_for()
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", name="orders.late").wait_for()


def test_delayed_message_is_cancelled(page: Any) -> None:
    page.goto(page.base + "#/topics/reminders?tab=delayed")
    page.get_by_text("1 messages are not due yet.").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the message").click()
    page.get_by_text("No message waits.").wait_for()


def test_schedule_is_created_run_and_paused(page: Any) -> None:
    page.goto(page.base + "#/schedules")
    page.get_by_role("button", name="Create schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("report")
    dialog.get_by_label("Times: cron").fill("0 9 * * MON-FRI")
    dialog.get_by_label("Topic").fill("orders")
    dialog.get_by_label("Value").fill("daily")
    dialog.get_by_role("button", name="Create", exact=True).click()
    dialog.wait_for(state="detached")
    page.get_by_role("link", name="report").click()
    page.get_by_role("button", name="Run now").click()
    page.get_by_text("1, 0 missed").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("paused").wait_for()


def test_webhook_is_created_with_a_secret_and_paused(page: Any) -> None:
    page.goto(page.base + "#/webhooks")
    page.get_by_role("button", name="Create webhook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("invoices")
    dialog.get_by_label("URL of the receiver").fill("http://127.0.0.1:9/hook")
    dialog.get_by_label("Queue").fill("jobs")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("whsec_").wait_for()
    page.get_by_role("button", name="I have copied it").click()
    page.get_by_role("link", name="invoices").click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()


def test_hostile_content_is_shown_as_text(page: Any) -> None:
    page.goto(page.base + "#/topics/payments")
    page.get_by_text("<img src=x").first.wait_for()
    for offset in range(3):
        page.goto(page.base + f"#/topics/payments/0/{offset}")
        page.get_by_role("heading", name=f"Message {offset} of partition 0").wait_for()
        page.locator(".content").wait_for()
    assert page.locator("img, script:not([src])").count() == 0


def test_hidden_values_stay_hidden(page: Any) -> None:
    page.goto(page.base + "#/topics/cards.private")
    page.get_by_text("The values of this topic are hidden").wait_for()
    page.get_by_text("hidden,").first.wait_for()
    assert "secret number" not in page.content()
    assert page.get_by_role("button", name="CSV").count() == 0


def test_lost_gateway_is_reported_and_the_page_recovers(page: Any, broker: BrokerProcess) -> None:
    page.watch.allowed = ("Failed to load resource", "ERR_", "EventSource")
    page.goto(page.base)
    page.get_by_text("All is well").wait_for()
    broker.kill()
    page.get_by_text("No connection.").wait_for()
    assert page.locator(".card").count() > 0, "the figures stay"
    broker.start()
    page.get_by_text("No connection.").wait_for(state="detached")
