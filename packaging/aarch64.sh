#!/bin/sh
# Runs the kernels of an aarch64 wheel in an emulator, with and without the dot-product instructions.
# Usage: packaging/aarch64.sh WHEEL [FOLDER]; the record goes to packaging/results/aarch64.txt.
# It needs Debian's apt and qemu-user-static. FOLDER gets Python, numpy, pillow and pydantic for arm64 from Debian; nothing
# is installed.
set -eu
wheel=$(realpath "$1")
cd "$(dirname "$0")/.."
root=${2:-build/aarch64}
suite=${SUITE:-trixie}  # its Python is 3.13
mkdir -p "$root"
root=$(realpath "$root")

if [ ! -e "$root/usr/bin/python3" ]; then
  state=$root/apt
  mkdir -p "$state/etc/apt/apt.conf.d" "$state/etc/apt/preferences.d" "$state/etc/apt/trusted.gpg.d" \
    "$state/var/lib/apt/lists/partial" "$state/var/lib/dpkg" "$state/var/cache/apt/archives/partial"
  touch "$state/var/lib/dpkg/status"
  # the mirror that apt here reads Debian's packages from
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
  [ "$mirror" ] || { echo "apt here reads no packages of Debian: run apt-get update, or see sources.list(5)" >&2; exit 1; }
  echo "deb $mirror $suite main" > "$state/etc/apt/sources.list"
  cat > "$state/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Debug::NoLocking "true";
Dir "$state/";
Dir::Etc::trustedparts "/usr/share/keyrings/";
Dir::State::status "$state/var/lib/dpkg/status";
EOF
  export APT_CONFIG="$state/apt.conf"
  apt-get -qq update
  apt-get -qq install --yes --download-only libc6 python3 python3-numpy python3-pil python3-pydantic
  for package in "$state"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  unset APT_CONFIG
fi

run() {
  libraries=$root/usr/lib/aarch64-linux-gnu
  qemu-aarch64-static -L "$root" -E PYTHONHOME="$root/usr" -E PYTHONPATH="$root/usr/lib/python3/dist-packages" \
    -E LD_LIBRARY_PATH="$libraries:$libraries/blas:$libraries/lapack" "$@"
}

# its loader must be where a program looks for it, below the folder that -L names
[ -e "$root/lib" ] || ln -s usr/lib "$root/lib"
mkdir -p packaging/results
(  # "set -e" does not hold here
  echo "date      $(date -u +%Y-%m-%dT%H:%MZ)"
  echo "command   packaging/aarch64.sh $(basename "$wheel")"
  echo "emulator  $(qemu-aarch64-static --version | head -n 1)"
  echo "commit    $(git rev-parse --short HEAD)"
  for processor in max cortex-a53; do # with and without dot products
    echo "processor $processor"
    run -cpu $processor "$root/usr/bin/python3" packaging/check_kernels.py "$wheel" || exit 1
  done
  echo "processor max, UNROLLED_ISA=neon"
  run -cpu max -E UNROLLED_ISA=neon "$root/usr/bin/python3" packaging/check_kernels.py "$wheel" || exit 1
) > packaging/results/aarch64.new 2>&1 || { cat packaging/results/aarch64.new; exit 1; }
mv packaging/results/aarch64.new packaging/results/aarch64.txt
cat packaging/results/aarch64.txt
