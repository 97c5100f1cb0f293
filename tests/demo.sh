#!/bin/sh
# The main job on the embedded backend: demo.sh LOCKCTL
set -eu
case $1 in /*) lockctl=$1 ;; *) lockctl=$PWD/$1 ;; esac
unset LOCKCTL_CONFIG LOCKCTL_TTL LOCKCTL_WAIT LOCKCTL_BACKEND
directory=$(mktemp -d)
keeper=
trap '[ -z "$keeper" ] || kill "$keeper" 2>/dev/null || :; rm -rf "$directory"' EXIT
url=file://$directory/locks
if ! "$lockctl" run -q -b "$url" -- true 2>/dev/null; then
    # in many containers /tmp is an overlay, which a lock for several containers must not be on
    url=$url?any_filesystem=yes
fi
LOCKCTL_BACKEND=$url
export LOCKCTL_BACKEND

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
shown() {
    printf '$ lockctl %s\n' "$*"
    status=0
    "$lockctl" "$@" || status=$?
    [ "$status" = 0 ] || echo "(exit status $status)"
}
wait_for() {
    tries=0
    while [ ! -s "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "the job did not start" >&2; exit 1; }
        sleep 0.05
    done
}

cat >"$directory/backup.sh" <<'JOB'
echo "backup: running with fencing token $LOCKCTL_TOKEN"
setsid sh -c 'trap "" TERM HUP; echo $$ >"$0"; sleep 60' "$1" >/dev/null 2>&1 &
sleep 60
JOB

say "A job runs under the lock 'nightly' (and forks a daemon that ignores TERM):"
"$lockctl" run -l nightly -- sh "$directory/backup.sh" "$directory/daemon" &
keeper=$!
wait_for "$directory/daemon"
daemon=$(cat "$directory/daemon")

say "A second one is refused, and told who holds it:"
shown run -l nightly -- echo "this must not be printed"
[ "$status" = 75 ] || { echo "the second run should have been refused" >&2; exit 1; }

say "The lock as an operator sees it:"
shown list

say "Now lockctl is killed in the worst way (kill -9). The next job starts when nothing of the first is left:"
kill -9 "$keeper"
wait "$keeper" 2>/dev/null || :
keeper=
shown run -l nightly --wait 20s -- sh -c 'echo "backup: running with fencing token $LOCKCTL_TOKEN"; ! kill -0 "$0" 2>/dev/null && echo "the daemon of the first job is gone"' "$daemon"
[ "$status" = 0 ] || { echo "the second run failed" >&2; exit 1; }

say "The lock is free again:"
shown list --all
