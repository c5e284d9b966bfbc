# Sourced by the other scripts: the Debian packages each needs, and how they get there.

build_packages=(
  ccache clang-19 cmake git lld-19 ninja-build pkg-config
  libboost1.81-dev libcli11-dev libpg-query-dev libpq-dev libpqxx-dev libspdlog-dev libssl-dev
  libtomlplusplus-dev postgresql-server-dev-15 prometheus-cpp-dev
)
server_packages=(postgresql-15 postgresql-client-15)
test_packages=(
  clang-format-19 libclang-rt-19-dev libgmock-dev libgtest-dev llvm-19
  libpostgresql-jdbc-java
  python3 python3-asyncpg python3-psycopg python3-psycopg2 python3-pytest python3-yaml
)
lint_packages=(clang-tidy-19)

# Programs of which any version will do, from whatever package: program package.
driver_programs=(node nodejs npm npm javac default-jdk-headless)

# install_programs program package...: installs the packages of programs that are not on PATH.
install_programs() {
  local missing=()
  while [[ $# -gt 1 ]]; do
    command -v "$1" >/dev/null || missing+=("$2")
    shift 2
  done
  [[ ${#missing[@]} -eq 0 ]] || install_missing "${missing[@]}"
}

# install_missing package...: installs what is not there yet; silent when nothing is missing.
install_missing() {
  local missing=() package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      missing+=("$package")
    fi
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  echo "installing: ${missing[*]}" >&2
  local as_root=()
  [[ $EUID -eq 0 ]] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
    --no-install-recommends "${missing[@]}" >&2
}
