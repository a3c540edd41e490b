# Sourced by the scripts that need npm's packages: bash, with set -euo pipefail.
# shellcheck shell=bash

# ensure_npm_packages FOLDER [FILE]: installs the packages of FOLDER/package-lock.json once, outside the checkout, and links
# FOLDER/node_modules to them. A folder node_modules that npm made stays. Where the packages cannot be had, it prints
# SKIPPED and the reason, and the tests that need them skip. With NPM_REQUIRED=true it prints the reason and fails. FILE is
# a pattern of a file that they must have: npm succeeds without a package for the machine's platform.
ensure_npm_packages() {
  local folder=$1 cache=${XDG_CACHE_HOME:-$HOME/.cache}/fencepost packages part why
  packages=$cache/npm-$(sha256sum "$folder/package-lock.json" | cut -c 1-16)
  if [[ -d $folder/node_modules && ! -L $folder/node_modules ]]; then
    return 0
  fi
  if [[ ! -d $packages/node_modules ]]; then
    if ! command -v npm >/dev/null; then
      leave_npm_packages "$folder: npm is not installed."
      return
    fi
    echo "Installing the packages of $folder/package-lock.json (once) ..."
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/npm.XXXXXX")
    cp "$folder/package.json" "$folder/package-lock.json" "$part"
    if ! why=$(cd "$part" && timeout 300 npm ci --include=optional --ignore-scripts --no-audit --no-fund --fetch-retries=1 --loglevel=error 2>&1); then
      rm -rf "$part"
      leave_npm_packages "$folder: npm cannot install its packages: $(head -n 1 <<<"$why")"
      return
    fi
    if ! compgen -G "$part/node_modules/${2:-}" >/dev/null; then
      rm -rf "$part"
      leave_npm_packages "$folder: npm installed its packages without $2; this is node $(node --version), on $(uname -sm)."
      return
    fi
    mv -T "$part" "$packages" 2>/dev/null || rm -rf "$part" # another run was first
  fi
  ln -sfn "$packages/node_modules" "$folder/node_modules"
}

# ensure_anvil: the development node of the tests of shared/chain.
ensure_anvil() { ensure_npm_packages shared/chain/anvil '@foundry-rs/anvil-*/bin/anvil'; }

# leave_npm_packages REASON: prints why packages are missing, and fails if NPM_REQUIRED is true.
leave_npm_packages() {
  if [[ ${NPM_REQUIRED:-} == true ]]; then
    echo "REQUIRED, and missing: $1" >&2
    return 1
  fi
  echo "SKIPPED: $1"
}
