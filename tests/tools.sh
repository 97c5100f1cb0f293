#!/bin/sh
# Programs that tests talk to: as root they are installed with apt-get, else what is missing is named.
set -eu
missing=
for pair in cron:cron mandoc:mandoc zsh:zsh fish:fish bash:bash git:git sqlite3:sqlite3 flock:util-linux unshare:util-linux \
    mount:mount timeout:coreutils kubectl:kubernetes-client node:nodejs npm:npm setsid:util-linux strace:strace \
    dpkg-buildpackage:dpkg-dev dh:debhelper pybuild:dh-python rpmbuild:rpm; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
[ -e /usr/share/doc/pybuild-plugin-pyproject ] || missing="$missing pybuild-plugin-pyproject"
[ -e /usr/share/bash-completion/bash_completion ] || missing="$missing bash-completion"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing with apt-get:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "tests that need these Debian packages are left out; root can install them:$missing"
fi
