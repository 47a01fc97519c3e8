#!/bin/sh
# Builds the extension with AddressSanitizer and UndefinedBehaviorSanitizer and runs its tests on every instruction set.
# Then it sends FUZZ (2000) damaged files through the C++ readers.
# Usage: [FUZZ=N] benchmarks/sanitize.sh [python]; the record goes to benchmarks/results/sanitize.txt.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S . -B "$build" -DUNROLLED_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug \
  -DPython_EXECUTABLE="$(command -v "$python")" -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" >/dev/null
cmake --build "$build" >/dev/null
# no leak check: the interpreter's own leaks would hide all others
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
libraries="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $(gcc -print-file-name=libstdc++.so.6)"
{
  echo "date      $(date -u +%Y-%m-%dT%H:%MZ)"
  echo "command   benchmarks/sanitize.sh"
  echo "compiler  $(c++ --version | head -n 1)"
  "$python" -c 'import platform, torch; print("python   ", platform.python_version()); print("torch    ", torch.__version__)'
  echo "commit    $(git rev-parse --short HEAD)"
  for isa in avx512 avx2 plain; do
    echo "$isa: $(LD_PRELOAD="$libraries" UNROLLED_ISA=$isa "$python" benchmarks/sanitized_tests.py "$build" 2>&1 | tail -n 3 | tr '\n' ' ')"
  done
  echo "fuzz: $(LD_PRELOAD="$libraries" PYTHONPATH=. "$python" benchmarks/sanitized_fuzz.py "$build" "${FUZZ:-2000}" 2>&1 | tail -n 3 | tr '\n' ' ')"
} | tee benchmarks/results/sanitize.txt
