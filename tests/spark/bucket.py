"""A bucket on this machine, and Hadoop's file system for it; run by itself it does what its arguments say in one Spark
session: verbs of `failover-report`, separated by `--`."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build/ivy"
"""Kept: 40 MB."""
BUCKET = "fleet"
_SDK = "2.35.4"
"""Of Amazon's SDK, as the pom of hadoop-aws 3.5.0 wants it; its parts in place of `bundle`, which has 600 MB."""
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "sts", "s3-transfer-manager")),
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
UNREACHED = ("unresolved dependency", "Server access error", "UNRESOLVED DEPENDENCIES", "download failed")


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Its endpoint."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    once = mock.patch.object(BaseHTTPRequestHandler, "handle_expect_100", return_value=True)
    with once:  # werkzeug answers `Expect: 100-continue` as well, and the SDK takes the second 100 for the answer
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield f"http://{host}:{port}"
        finally:
            server.stop()


def client(endpoint: str) -> Any:
    """boto3's."""
    boto3 = importlib.import_module("boto3")
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=endpoint, **keys)


def environment(endpoint: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    return {**os.environ, **keys, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "PYTHONPATH": str(ROOT)}


def run(endpoint: str, *verbs: Sequence[str]) -> subprocess.CompletedProcess[str]:
    words = itertools.chain.from_iterable((*verb, "--") for verb in verbs)
    command = [sys.executable, "-m", "tests.spark.bucket", endpoint, *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=1100, check=False, env=environment(endpoint), cwd=ROOT
    )


def main(endpoint: str, words: Sequence[str]) -> int:
    from spark_jobs.cli.main import main as failover_report
    from spark_jobs.engine.session import context
    from tests.spark import standalone

    options = {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.jars.ivy": str(JARS),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.driver.extraJavaOptions": standalone.QUICK,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    begun = context("local[2]", shuffle=2, memory="1g", options=options)
    for last, verb in itertools.groupby(words, key=lambda word: word == "--"):
        if not last and (code := failover_report([*verb, "--engine", "spark"])):
            return code
    begun.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
