"""What `import lockctl.fence` costs a program."""

from __future__ import annotations

import subprocess
import sys

LIBRARIES = {
    "redis",
    "kazoo",
    "psycopg2",
    "pymysql",
    "boto3",
    "botocore",
    "consul",
    "requests",
    "click",
    "rich",
    "sqlite3",
    "ssl",
}
ASK = "import sys, lockctl.fence; print(*{name.partition('.')[0] for name in sys.modules})"


def test_it_loads_no_client_library() -> None:
    words = [sys.executable, "-c", ASK]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout.split()
    assert "lockctl" in loaded
    assert LIBRARIES.isdisjoint(loaded)
