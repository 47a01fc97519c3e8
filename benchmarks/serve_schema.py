"""schemathesis over the whole OpenAPI document of a service with one model of each task. Loopback only.

    python -m venv schema && schema/bin/pip install schemathesis
    python benchmarks/serve_schema.py --schemathesis schema/bin/schemathesis [--examples 50] [--out FILE]

Every operation gets valid and invalid requests; no answer may be a server error, lack the documented type or shape, or
accept what the schema forbids. The models are tiny ones of the tests.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from measure import RESULTS, machine

sys.path.insert(0, str(Path(__file__).parent.parent))
import json

from tests.see.models import train, write_files
from unrolled.serve import app

KINDS = ("generate-lstm", "classify", "tag-crf", "forecast", "translate-luong", "recognize", "caption")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemathesis", default="schemathesis", metavar="PROGRAM")
    parser.add_argument("--examples", type=int, default=50, help="requests for each operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=1200, help="the longest that it may take")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of models, as in tests/see/models.py")
    parser.add_argument("--only", metavar="TEXT", help="operations whose path has this regular expression")
    parser.add_argument("--out", type=Path, default=RESULTS / "serve_schema.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_files(data)
        models: dict[str, Any] = {kind: train(kind, data, Path(folder) / kind) for kind in given.kinds.split(",")}
        port, server = served(models)
        expected = str(Path(__file__).with_suffix(".toml"))
        command = [given.schemathesis, "--config-file", expected, "run", f"http://127.0.0.1:{port}/openapi.json"]
        command += ["--max-examples", str(given.examples), "--seed", str(given.seed), "--no-color"]
        command += ["--continue-on-failure", "--request-timeout", "60", "--max-time", str(given.seconds)]
        command += ["--suppress-health-check", "all", "--generation-allow-x00", "true"]
        command += ["--include-path-regex", given.only] if given.only else []
        began = time.monotonic()
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        server.should_exit = True
    facts = {
        "machine": machine(),
        "command": " ".join(command[3:]).replace(str(port), "PORT"),
        "seconds": round(time.monotonic() - began),
        "exit code": process.returncode,
        "summary": summary("".join(lines)),
    }
    given.out.write_text(json.dumps(facts, indent=1) + "\n")
    raise SystemExit(process.returncode)


def served(models: dict[str, Any]) -> tuple[int, uvicorn.Server]:
    """A service in a thread of this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = uvicorn.Config(app(models, max_seconds=5), host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.1)
    return port, server


def summary(text: str) -> list[str]:
    """The lines of schemathesis's summary."""
    return [line.strip() for line in re.split(r"=+ SUMMARY =+", text)[-1].splitlines() if line.strip()]


if __name__ == "__main__":
    main()
