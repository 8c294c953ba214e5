"""The same repository by `huggingface_hub.snapshot_download`, which verifies nothing.

    python -m tests.performance.snapshot REPOSITORY URL COMMIT DESTINATION

prints one JSON line: seconds and CPU seconds of the call, without the imports.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

os.environ.update(
    HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1"
)

# It reads its environment when it is imported.
from huggingface_hub import snapshot_download


def main(repository: str, url: str, commit: str, destination: str) -> None:
    """Download one repository into a fresh cache and say what it took."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    snapshot_download(repository, revision=commit, endpoint=url, cache_dir=destination)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sys.stdout.write(json.dumps({"seconds": seconds, "cpu_seconds": cpu}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
