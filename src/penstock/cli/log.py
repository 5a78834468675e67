"""`penstock log`: show and check segment files, without changing them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import Failure
from penstock.cli.log_files import BatchRow, batch_rows, check, find_segments
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, print_table
from penstock.cli.progress import reading_progress
from penstock.cli.times import show_time
from penstock.storage.inspection import SegmentReport

SHOWN_PROBLEMS = 100

app = typer.Typer(help="Show and check segment files.", no_args_is_help=True)

PathsArgument = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Segment files, or directories that contain them.")
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="log")


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A segment file, or a directory of them.")],
    maximum: Annotated[int, typer.Option("--max", min=1, help="Maximum number of batches to show.")] = 100,
    json: JsonOption = False,
) -> None:
    """Show the batches of a segment file, or the segments in a directory."""
    if not path.is_file():
        _show_reports(_check(find_segments([path])), json)
        return
    rows = list(islice(batch_rows(path), maximum + 1))
    if json:
        print_json([row.as_json() for row in rows[:maximum]])
        return
    print_table(BatchRow.COLUMNS, [row.cells() for row in rows[:maximum]])
    if len(rows) > maximum:
        typer.echo(f"only the first {maximum} batches are shown; --max shows more", err=True)


@app.command("check")
def check_all(paths: PathsArgument, json: JsonOption = False) -> None:
    """Check sizes, CRCs, offsets, leader epochs and indexes of segments. The exit code is 1 if there are problems."""
    reports = _check(find_segments(paths))
    _show_reports(reports, json)
    problems = sum(len(report.problems) for report in reports)
    if problems:
        raise Failure(
            f"{problems} {'problem' if problems == 1 else 'problems'} found",
            "The broker rebuilds indexes at start, and repairs damaged batches from other replicas.",
        )


def _check(segments: list[Path]) -> list[SegmentReport]:
    with reading_progress(segments) as progress:
        return [check(segment, progress.advance) for segment in segments]


def _show_reports(reports: list[SegmentReport], json: bool) -> None:
    if json:
        print_json([_report_json(report) for report in reports])
        return
    print_table(
        ["segment", "bytes", "batches", "records", "first offset", "last offset", "newest", "problems"],
        [_report_cells(report) for report in reports],
    )
    problems = [problem for report in reports for problem in report.problems]
    for problem in problems[:SHOWN_PROBLEMS]:
        typer.echo(f"{problem.file} at {problem.position}: {problem.message}")
    if len(problems) > SHOWN_PROBLEMS:
        typer.echo(f"and {len(problems) - SHOWN_PROBLEMS} more")


def _report_cells(report: SegmentReport) -> tuple[object, ...]:
    return (
        report.path,
        report.size_bytes,
        report.batches,
        report.records,
        "-" if report.first_offset is None else report.first_offset,
        "-" if report.last_offset is None else report.last_offset,
        show_time(report.max_timestamp),
        len(report.problems),
    )


def _report_json(report: SegmentReport) -> dict[str, object]:
    return {
        "segment": report.path,
        "bytes": report.size_bytes,
        "batches": report.batches,
        "records": report.records,
        "first_offset": report.first_offset,
        "last_offset": report.last_offset,
        "max_timestamp": report.max_timestamp,
        "problems": [
            {"file": problem.file, "position": problem.position, "message": problem.message}
            for problem in report.problems
        ],
    }
