#!/bin/sh
# The tests that use our dependencies, with the lowest versions of them that pyproject.toml allows, on the oldest Python.
set -eu
directory=.venv/lowest
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python3 "$(command -v python3.10 || :)" python3; do
    "$python" -c 'import ensurepip' 2>/dev/null && break
done
requirements=$directory.txt
mkdir -p .venv
# `name>=1.2,<3; marker` of the project and of its extras -> `name==1.2; marker`
"$python" - >"$requirements" <<'PROGRAM'
import re

with open("pyproject.toml", encoding="utf-8") as file:
    project = file.read().partition("\n[project.scripts]")[0]
found = re.findall(r'"([A-Za-z0-9_-]+)>=([0-9.]+)(?:,<[0-9.]+)?((?:; [^"]*)?)"', project.partition("\ndependencies")[2])
assert len(found) >= 8, found
for name, version, marker in found:
    print(f"{name}=={version}{marker}")
PROGRAM
echo "== the lowest versions" && cat "$requirements"
[ -x "$directory/bin/python" ] || sh tests/venv.sh "$python" "$directory"
"$directory/bin/python" -m pip install -q -e . --group dev
# what only the tests use may want newer ones: its wishes do not count here
"$directory/bin/python" -m pip install -q --no-deps --force-reinstall -r "$requirements"
"$directory/bin/python" -m pytest -n 3 \
    tests/surface/test_help.py tests/surface/test_config_verb.py tests/unit/cli tests/unit/test_toml.py \
    tests/doctor/test_redis.py tests/contract/test_zookeeper.py tests/contract/test_postgresql.py \
    tests/stores/redis/test_lock.py tests/stores/dynamodb/test_requests.py tests/stores/nats/test_lock.py \
    tests/stores/gcs/test_credentials.py tests/stores/azblob/test_credentials.py tests/stores/kubernetes \
    tests/fence/test_postgresql.py tests/fence/test_mysql.py tests/fence/test_zookeeper.py tests/fence/test_s3.py
