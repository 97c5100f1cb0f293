#!/bin/sh
# Azurite, a server of Azure Blob Storage, and dynalite, one of DynamoDB, come with npm only: they are unpacked below
# .servers, without scripts of their own. Where they cannot be had, the tests that need them are left out (in CI they
# fail).
set -eu
cd "$(dirname "$0")/.."
mkdir -p .servers
exec 9>.servers/npm.lock
flock 9 # one unpacks, the others find everything done
for package in azurite@3.35.0 dynalite@3.2.2; do
    name=${package%@*}
    place=.servers/$name
    [ ! -e "$place/node_modules/$name/package.json" ] || continue
    if ! command -v npm >/dev/null; then
        echo "tests that need $name are left out: npm is not here"
        continue
    fi
    echo "unpacking $name into $place with npm"
    rm -rf "$place.new"
    mkdir "$place.new"
    if timeout 600 npm install --prefix "$place.new" --no-audit --no-fund --ignore-scripts --omit=optional --loglevel=error \
        "$package" >"$place.log" 2>&1; then
        rm -rf "$place"
        mv "$place.new" "$place"
    else
        echo "tests that need $name are left out: npm cannot get it, see $place.log"
    fi
done
