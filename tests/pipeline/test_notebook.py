"""The notebook of docs/examples, run in the shared Spark session."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import matplotlib
from archive_helpers import make
from declared_helpers import send
from pyspark.sql import SparkSession

from penstock.testing.process import BrokerProcess

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "notebook" / "orders.ipynb"


def test_notebook_runs_from_the_first_cell_to_the_last(
    spark: SparkSession, penstock_session_broker: BrokerProcess
) -> None:
    matplotlib.use("Agg")
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "notebook-orders", 1)
    send(bootstrap, "notebook-orders", [{"id": 1, "total": 12.5}, {"id": 2, "total": 7.5}])
    said = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(said):
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                code = "".join(cell["source"]).replace("localhost:9092", bootstrap)
                exec(code.replace('"subscribe", "orders"', '"subscribe", "notebook-orders"'), names)
    assert "20.0" in said.getvalue()
