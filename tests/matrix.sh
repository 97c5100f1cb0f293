#!/bin/sh
# The fast tests on every Python from 3.10 on that is here: on the PATH, or under pyenv.
set -eu
tested=0
for minor in 10 11 12 13 14 15; do
    python=
    for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3 "$(command -v python3.$minor || :)"; do
        [ -x "$candidate" ] && "$candidate" -c 'import ensurepip' 2>/dev/null && python=$candidate
    done
    [ -n "$python" ] || continue
    echo "== $("$python" --version)"
    directory=.venv/python3.$minor
    [ -x "$directory/bin/pytest" ] || sh tests/venv.sh "$python" "$directory"
    "$directory/bin/python" -m pip install -q -e . --group dev
    "$directory/bin/python" -m pytest -n 3 tests/unit tests/contract tests/run -x --deselect tests/run/test_cron.py
    tested=$((tested + 1))
done
[ "$tested" -gt 0 ]
