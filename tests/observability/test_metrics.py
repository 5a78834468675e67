from __future__ import annotations

import asyncio
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import ErrorCode
from penstock.observability.exposition import merge, render
from penstock.observability.loop_lag import INTERVAL_SECONDS, LoopLag
from penstock.observability.metrics import MAX_REASONS, BrokerMetrics, Histogram, TopicSize
from support.metrics_snapshot import take_snapshot


def make_metrics(max_topics: int = 10) -> BrokerMetrics:
    return BrokerMetrics({0: "Produce", 1: "Fetch"}, max_topics)


def scrape(metrics: BrokerMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return samples_of(render(take_snapshot(metrics)))


def samples_of(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples by name and label values."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_requests_are_counted_and_timed_by_api() -> None:
    metrics = make_metrics()
    metrics.requests[0].observe(0.0002)
    metrics.requests[0].observe(0.3)
    samples = scrape(metrics)
    assert samples["penstock_request_seconds_count", ("Produce",)] == 2
    assert samples["penstock_request_seconds_sum", ("Produce",)] == pytest.approx(0.3002)
    assert samples["penstock_request_seconds_bucket", ("Produce", "0.00025")] == 1
    assert samples["penstock_request_seconds_bucket", ("Produce", "0.5")] == 2
    assert samples["penstock_request_seconds_bucket", ("Produce", "+Inf")] == 2
    assert samples["penstock_request_seconds_count", ("Fetch",)] == 0


def test_bucket_bounds_are_inclusive() -> None:
    metrics = make_metrics()
    metrics.requests[0].observe(0.001)
    assert scrape(metrics)["penstock_request_seconds_bucket", ("Produce", "0.001")] == 1


def test_the_longest_durations_are_counted_too() -> None:
    metrics = make_metrics()
    metrics.flushes.observe(3600.0)
    samples = scrape(metrics)
    assert samples["penstock_flush_seconds_bucket", ("10.0",)] == 0
    assert samples["penstock_flush_seconds_bucket", ("+Inf",)] == 1


def test_produce_errors_are_counted_by_code() -> None:
    metrics = make_metrics()
    metrics.produce_failed(ErrorCode.message_too_large)
    metrics.produce_failed(ErrorCode.message_too_large)
    assert scrape(metrics)["penstock_produce_errors_total", ("MESSAGE_TOO_LARGE",)] == 2


def test_scraped_metrics_are_read_at_each_scrape() -> None:
    metrics = make_metrics()
    connections = [1]
    metrics.add_gauge("penstock_connections", "Open.", lambda: connections[0])
    metrics.add_counter("penstock_received_bytes", "In.", lambda: 7)
    connections[0] = 5
    samples = scrape(metrics)
    assert samples["penstock_connections", ()] == 5
    assert samples["penstock_received_bytes_total", ()] == 7


def test_reasons_beyond_the_limit_are_counted_together() -> None:
    metrics = make_metrics()
    for number in range(1000):
        metrics.refused(f"reason {number}")
    refused = {
        labels: value for (name, labels), value in scrape(metrics).items() if name == "penstock_refused_total"
    }
    assert len(refused) == MAX_REASONS + 1
    assert sum(refused.values()) == 1000


def test_topics_beyond_the_limit_are_added_up() -> None:
    metrics = make_metrics(max_topics=2)
    metrics.topic_sizes = lambda: [TopicSize(name, 1, 10, 100) for name in ("d", "c", "b", "a")]
    sizes = {
        labels: value
        for (name, labels), value in scrape(metrics).items()
        if name == "penstock_topic_log_bytes"
    }
    assert sizes == {("a",): 10, ("b",): 10, ("(other)",): 20}


def test_a_hostile_label_stays_one_line() -> None:
    metrics = make_metrics()
    metrics.refused('x"} 1\nforged_metric 5')
    assert not any(name == "forged_metric" for name, _ in scrape(metrics))


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_texts_of_processes_are_merged_with_worker_label() -> None:
    texts = {}
    for name, seconds in (("0", 0.1), ("1", 0.2)):
        metrics = make_metrics()
        metrics.requests[0].observe(seconds)
        metrics.produce_errors[ErrorCode.message_too_large] = 3
        texts[name] = render(take_snapshot(metrics))
    merged = merge({**texts, "gone": b""}, "worker")
    samples = samples_of(merged)
    assert samples["penstock_request_seconds_sum", ("Produce", "0")] == pytest.approx(0.1)
    assert samples["penstock_request_seconds_sum", ("Produce", "1")] == pytest.approx(0.2)
    assert samples["penstock_produce_errors_total", ("MESSAGE_TOO_LARGE", "1")] == 3
    assert merged.count(b"# TYPE penstock_request_seconds ") == 1
    assert len(samples) == sum(len(samples_of(text)) for text in texts.values())


def test_process_memory_and_files_are_shown() -> None:
    assert scrape(make_metrics())["process_open_fds", ()] > 0


def test_loop_lag_measures_delay_of_a_busy_loop() -> None:
    histogram = Histogram()

    async def run() -> None:
        lag = LoopLag(histogram)
        lag.start()
        loop = asyncio.get_running_loop()
        blocked_until = loop.time() + INTERVAL_SECONDS + 0.1
        while loop.time() < blocked_until:
            pass
        await asyncio.sleep(0.01)
        lag.stop()

    asyncio.run(run())
    assert sum(histogram.counts) >= 1
    assert histogram.total_seconds >= 0.1
