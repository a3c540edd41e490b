# Sourced by the scripts that test or draw the console, after postgres.sh: bash, with set -euo pipefail.
# shellcheck shell=bash

# ensure_chromium: installs Chromium where apt-get works. It sets no_browser to why the browser tests are skipped; "": they run.
ensure_chromium() {
  no_browser=
  if ! command -v chromium chromium-browser google-chrome >/dev/null && ! apt_install chromium && ! { apt_update && apt_install chromium; }; then
    no_browser="Chromium is not installed, and apt-get cannot install it: Debian's package is chromium"
    echo "$no_browser." >&2
    return 1
  fi
}

# apt_update: fetches the lists of packages, where apt-get works without a password.
apt_update() {
  local as_root=(env)
  if [[ $EUID -ne 0 ]]; then
    as_root=(sudo -n)
  fi
  command -v apt-get >/dev/null && "${as_root[@]}" apt-get -qq update
}

# The checks of accessibility: npm's package axe-core in this version, with this SHA-512.
axe_version=4.14.1
axe_sha512=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5

# ensure_axe: fetches it if it is missing, and exports AXE_CORE, its file. Without it the pages are not checked by it.
ensure_axe() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/fencepost part
  AXE_CORE=$cache/axe-core-$axe_version.js
  if [[ ! -f $AXE_CORE ]]; then
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/axe-XXXXXX")
    if (
      cd "$part" &&
        npm pack --silent --fetch-retries=1 "axe-core@$axe_version" >/dev/null &&
        sha512sum --check --status <<<"$axe_sha512  axe-core-$axe_version.tgz" &&
        tar -xzf "axe-core-$axe_version.tgz" package/axe.min.js
    ) 2>/dev/null; then
      mv "$part/package/axe.min.js" "$AXE_CORE"
    fi
    rm -rf "$part"
  fi
  if [[ ! -f $AXE_CORE ]]; then
    echo "axe-core $axe_version could not be fetched from the npm registry: the console's accessibility is not checked." >&2
    return 1
  fi
  export AXE_CORE
}
