"""A file with every kind of mistake: each is reported with its line, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.cli.failures import Failure
from penstock.cli.pipeline.pipeline_file import read_pipelines

MISTAKES = r"""
extra: 1                                     #! unknown name 'extra'
pipelines:
  - name: "with blank"                       #! is not a name
    sorce: 1                                 #! did you mean 'source'
    description: [a]                         #! give a string
    source: {topics: [a, "b c"]}             #! 'b c' is not a topic name
    target: {table: t}
    target: {topic: a}                       #! the key 'target' is given twice #! must not write to it
    dead_letter: "x y"                       #! 'x y' is not a topic name #! needs a schema
  - source: {topics: [a], pattern: "("}      #! name is missing #! either topics or pattern #! not a regular expression
    target: {archive: x, table: y, keep: 3}  #! only target of its pipeline #! 3 is not a duration #! remove transform
    transform: {sql: x, function: f}         #! either sql or function #! write package.module:function
    schedule:                                #! give either every or cron
      every: 1m
      cron: "61 * * * *"                     #! not a cron expression
      timezone: Mars/Phobos                  #! no timezone
    timeout: soon                            #! 'soon' is not a duration
  - name: third
    source:
      topics: [a]
      start: now                             #! give earliest or latest
      options: []                            #! a mapping of options
      archive: 7                             #! give a string
    schema: {file: no-such-file.json}        #! cannot read no-such-file.json
    target: {topic: b, chart: c.png, keep: 1d} #! add table #! keep needs an archive
    transform:
      mode: fast                             #! give stream or batch
      sql: select 1
      watermark: {column: 1}                 #! delay is missing #! give a string
    schedule: {every: 0s, timezone: UTC}     #! '0s' is not a duration #! timezone needs cron
  - name: third                              #! two pipelines have the name 'third'
    source: 1                                #! give a mapping
    schema: "id bigin"                       #! unknown type 'bigin'
    target: {}                               #! give a topic, a table
    schedule: sometimes                      #! give a mapping
  - name: fifth
    source: {topics: []}                     #! give a list of topics
    schema: {type: object, properties: {id: {type: integr}}} #! unknown type 'integr'
    target: {table: y}                       #! another pipeline writes to y too
    when: !!python/object:os.system x        #! cannot be used: give #! unknown name 'when'
  - just a text                              #! give a mapping
"""


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(MISTAKES)
    with pytest.raises(Failure) as caught:
        read_pipelines(path)
    said = str(caught.value).splitlines()[1:]
    missing, left = [], list(said)
    for number, line in enumerate(MISTAKES.splitlines(), 1):
        for wanted in (each.strip() for each in line.split("#!")[1:]):
            found = [each for each in left if each.startswith(f"{path}:{number}: ") and wanted in each]
            left = [each for each in left if each not in found[:1]]
            missing += [] if found else [f"{number}: {wanted}"]
    assert (missing, left) == ([], [])
    assert [int(re.findall(r":(\d+): ", each)[0]) for each in said] == sorted(
        int(re.findall(r":(\d+): ", each)[0]) for each in said
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"pipelines:\n  - name: [\n", 3),
        (b"pipelines: [\n", 2),
        (b"a: b: c\n", 1),
        (b"pipelines:\n\t- name: x\n", 2),
        (b"", 1),
        (b"- 1\n", 1),
        (b"pipelines: {}\n", 1),
        (b"pipelines: *nothing\n", 1),
    ],
)
def test_file_without_a_list_of_pipelines_names_the_line(content: bytes, line: int, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(Failure, match=rf"broken\.yaml:{line}: "):
        read_pipelines(path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"pipelines: \x00", b"a: &a [*a]\n", b"? [x]\n: 1\n"])
def test_content_that_is_no_plain_yaml_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(Failure):
        read_pipelines(path)
