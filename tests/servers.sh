#!/bin/sh
# The servers that tests run against. What this machine lacks is downloaded as Debian packages, which are only
# unpacked, below .servers: nothing of the system is changed, no root is needed, and `make clean` removes it.
# Where a server cannot be had, it is named, and the tests that need it are left out (in CI they fail).
set -eu
cd "$(dirname "$0")/.."
place=$PWD/.servers

# program:package, as Debian names them
needed="redis-server:redis-server etcd:etcd-server etcdctl:etcd-client java:default-jre-headless
    zookeeper.jar:libzookeeper-java postgres:postgresql pgbouncer:pgbouncer consul:consul
    openssl:openssl mariadbd:mariadb-server-core mariadb:mariadb-client-core lighttpd:lighttpd-mod-webdav
    promtool:prometheus"

# Where programs are below the root directory $1. The same places are known to tests/servers/programs.py.
is_below() {
    for found in "$1"/usr/bin/"$2" "$1"/usr/sbin/"$2" "$1"/usr/lib/postgresql/*/bin/"$2" \
        "$1"/usr/lib/jvm/*/bin/"$2" "$1"/usr/share/java/"$2"; do
        [ -e "$found" ] && return 0
    done
    return 1
}

# The packages whose programs are neither on this machine ($1 empty) nor below $1.
missing() {
    for pair in $needed; do
        program=${pair%%:*}
        command -v "$program" >/dev/null || is_below "" "$program" || is_below "$1" "$program" || echo "${pair##*:}"
    done
}

give_up() {
    # shellcheck disable=SC2046 # a list of words
    echo "tests that need these servers are left out ($1):" $(missing "$place/root")
    exit 0
}

[ -n "$(missing "$place/root")" ] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || give_up "only Debian's packages are known here"

mkdir -p "$place"
exec 9>"$place/lock"
flock 9 # one unpacks, the others find everything done
[ -n "$(missing "$place/root")" ] || exit 0
# shellcheck disable=SC2046 # a list of words
echo "downloading into .servers, to be unpacked there:" $(missing /nowhere)

# Lists and archives of our own: those of the system may be missing, old, or not ours to change.
apt=$place/apt
rm -rf "$apt" "$place/new"
mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/archives/partial" "$place/new"
cat >"$apt/conf" <<END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$apt/sources";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt";
Dir::Cache::Archives "$apt/archives";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
APT::Sandbox::User "";
APT::Update::Post-Invoke { };
APT::Update::Post-Invoke-Success { };
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
export APT_CONFIG="$apt/conf"

# The machine's own sources, and once more those of its release with the name of the one that had Consul last.
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ -s "$file" ] || continue
    name=$(basename "$file")
    cp "$file" "$apt/sources/$name"
    case $name in
    *.sources) awk -v RS= -v ORS='\n\n' -v release="$release" '
        match($0, "(^|\n)Suites:[^\n]*[ \t]" release "([ \t\n]|$)") { sub(/(^|\n)Suites:[^\n]*/, "\nSuites: bullseye"); print }
        ' "$file" >"$apt/sources/bullseye-$name" ;;
    *) sed -nE "s/^([ \t]*deb[ \t].*[ \t])$release([ \t])/\1bullseye\2/p" "$file" >"$apt/sources/bullseye-$name" ;;
    esac
done

log=$place/log
timeout 300 apt-get update >"$log" 2>&1 || : # one source in need of a certificate must not stop the others
simulated() {
    timeout 60 apt-get install -s --no-install-recommends "$@" 2>>"$log"
}
wanted=$(missing /nowhere)
# shellcheck disable=SC2086 # a list of words
if ! plan=$(simulated $wanted); then
    # Packages that are not there are left out one by one, so that one missing server costs only its own tests.
    found=
    for package in $wanted; do
        ! simulated "$package" >/dev/null || found="$found $package"
    done
    [ -n "$found" ] || give_up "Debian's packages cannot be reached, see .servers/log"
    # shellcheck disable=SC2086 # a list of words
    plan=$(simulated $found)
fi

# "Inst NAME (VERSION ...)" is new here. "Inst NAME [OLD] (NEW ...)" would replace what the machine has, which does.
# Perl, LLVM and scripts of web pages are for programs, queries and screens that no test uses.
packages=$(printf '%s\n' "$plan" |
    sed -nE 's/^Inst ([^ ]+) \(([^ ]+) .*/\1=\2/p' | grep -vE '^(libllvm|libz3|perl|libperl|libjs-|fonts-glyph)')
# shellcheck disable=SC2086 # a list of words
(cd "$apt/archives" && timeout 900 apt-get download $packages >>"$log" 2>&1) || :
find "$apt/archives" -maxdepth 1 -name '*.deb' -print0 | xargs -0 -r -n 1 -P "$(nproc)" sh -c 'dpkg-deb -x "$1" "$0"' "$place/new"
# Links to places below / mean places below here.
find "$place/new" -type l -lname '/*' | while read -r link; do
    target=$place/new$(readlink "$link")
    [ ! -e "$target" ] || ln -snfr "$target" "$link"
done
# What Debian does when it installs Java: without it, each start takes half a second longer.
for java in "$place"/new/usr/lib/jvm/*/bin/java; do
    [ -L "${java%/bin/java}" ] || [ ! -x "$java" ] || timeout 60 "$java" -Xshare:dump >>"$log" 2>&1 || :
done
rm -rf "$place/root" "$apt"
mv "$place/new" "$place/root"
[ -z "$(missing "$place/root")" ] || give_up "not among Debian's packages here, see .servers/log"
