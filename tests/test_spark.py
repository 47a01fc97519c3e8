"""The `pandas_udf` of docs/clusters.md, on Spark."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from unrolled.model import Model

PAGE = Path(__file__).parents[1] / "docs" / "clusters.md"
TEXTS = [f"one {'fine' if number % 3 else 'poor'} two {'three ' * (number % 4)}" for number in range(60)]


def test_the_pandas_udf_of_the_page(
    run_of: Callable[[str], Path],
    model_of: Callable[[str], Model],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="it needs pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mood").symlink_to(run_of("classify"))
    parquet.write_table(pa.table({"text": TEXTS}), "reviews.parquet")
    (block,) = [found for found in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "pyspark" in found]
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    )
    try:
        exec(compile(block, str(PAGE), "exec"), {"__name__": "__main__", "spark": spark})
    finally:
        spark.stop()
    rows = parquet.read_table("answered.parquet").to_pylist()
    assert {row["text"]: row["mood"] for row in rows} == {
        text: str(model_of("classify").predict(text)) for text in TEXTS
    }
    assert len(rows) == len(TEXTS)
