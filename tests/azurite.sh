#!/bin/sh
# Azurite, a server of Azure Blob Storage, comes with npm only: it is unpacked below .servers, without scripts of its own.
# Where it cannot be had, the tests that need it are left out (in CI they fail).
set -eu
cd "$(dirname "$0")/.."
version=3.35.0
place=.servers/azurite
program=$place/node_modules/azurite/dist/src/blob/main.js
mkdir -p .servers
exec 9>.servers/azurite.lock
flock 9 # one unpacks, the others find everything done
[ ! -e "$program" ] || exit 0
if ! command -v npm >/dev/null; then
    echo "tests that need Azurite are left out: npm is not here"
    exit 0
fi
echo "unpacking Azurite into $place with npm"
rm -rf "$place.new"
mkdir "$place.new"
if timeout 600 npm install --prefix "$place.new" --no-audit --no-fund --ignore-scripts --loglevel=error "azurite@$version" \
    >.servers/azurite.log 2>&1; then
    rm -rf "$place"
    mv "$place.new" "$place"
else
    echo "tests that need Azurite are left out: npm cannot get it, see .servers/azurite.log"
fi
