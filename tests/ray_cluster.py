"""A Ray cluster of three nodes on this machine, one of which is killed while it answers; `python -m` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT = 900  # seconds
OWN = "127.0.0.2"  # loopback; Ray puts the machine's own address in the place of 127.0.0.1


def answers_of_a_cluster(
    kind: str, folder: Path, model: Path, column: str, relative: Path | None
) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a dataset with answers, and whether a node was killed that answered, before the last of them came.

    It runs in a process of its own: Ray starts and ends with it.
    """
    words = [kind, str(folder), str(model), column, str(relative or "")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.ray_cluster", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    rows, killed = json.loads(done.stdout.splitlines()[-1])
    return rows, killed


def started(cluster: Any, **settings: Any) -> Any:
    """A node of a cluster. Ray waits 30 seconds for it, which are few on a busy machine."""
    for _ in range(4):
        with suppress(Exception):
            return cluster.add_node(**settings)
    return cluster.add_node(**settings)


def main(kind: str, folder: str, model: str, column: str, relative: str) -> None:
    import ray
    from pyarrow import csv
    from ray._private.state import actors
    from ray.cluster_utils import Cluster

    import unrolled.ray

    node = {"num_cpus": 2, "node_ip_address": OWN, "object_store_memory": 100 << 20}
    cluster = Cluster()
    started(cluster, **node, include_dashboard=False)
    others = [started(cluster, **node) for _ in range(2)]
    ray.init(address=cluster.address, _node_ip_address=OWN, logging_level="warning")
    cluster.wait_for_nodes()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    if kind == "text":
        data = ray.data.read_text(f"{folder}/texts.txt")
    elif kind == "parquet":
        data = ray.data.read_parquet(f"{folder}/texts.parquet")
    else:
        names = csv.ReadOptions(column_names=["audio", "said"])
        manifest = f"{folder}/{kind}.tsv" if Path(folder, f"{kind}.tsv").exists() else f"{folder}/train.tsv"
        data = ray.data.read_csv(manifest, read_options=names, parse_options=csv.ParseOptions(delimiter="\t"))
    found = unrolled.ray.predict(
        data.repartition(30), model, column=column, folder=relative or None, actors=3, batch_size=4
    )
    rows, at = list[dict[str, Any]](), 0
    for row in found.iter_rows():
        rows.append(row)
        busy = {one["Address"]["NodeID"] for one in actors().values() if one["State"] == "ALIVE"} if not at else set()
        if victim := next((one for one in others if one.node_id in busy), None):
            cluster.remove_node(victim, allow_graceful=False)
            at = len(rows)
    ray.shutdown()
    cluster.shutdown()
    print("\n" + json.dumps([rows, 0 < at < len(rows)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
