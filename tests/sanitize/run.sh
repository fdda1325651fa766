#!/bin/sh
# make sanitize: the C++ kernels under GCC's sanitizers. Arguments choose among the two, both without:
#   memory   AddressSanitizer and UndefinedBehaviorSanitizer: the kernels' tests, and random networks
#   threads  ThreadSanitizer: the same, fewer of them, and spdnn.ops, each from four threads at once. LLVM's OpenMP takes
#            the place of GCC's: its Archer tells the sanitizer what OpenMP orders.
# Each shows first that it finds what is planted (planted.cpp). Builds stay in build/sanitize.
set -eu
cd "$(dirname "$0")/../.."
here=tests/sanitize
CXX=${CXX:-g++}
export OPENBLAS_NUM_THREADS=1

# build NAME FLAGS: the compiled module, and the planted faults, in build/sanitize/NAME
build() {
    echo "sanitize: building the kernels for $1"
    folder=build/sanitize/$1
    mkdir -p "$folder"
    if ! { cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_CXX_COMPILER="$CXX" \
        -DCMAKE_CXX_FLAGS="-O1 -g $2" -Dnanobind_DIR="$(python -m nanobind --cmake_dir)" \
        -DPython_EXECUTABLE="$(command -v python)" && cmake --build "$folder"; } >"$folder/log" 2>&1; then
        tail -n 20 "$folder/log" >&2
        exit 1
    fi
    # shellcheck disable=SC2086
    "$CXX" -O1 -g $2 -fopenmp -fPIC -shared -o "$folder/planted.so" "$here/planted.cpp"
}

check() { python "$here/check.py" "$folder" "$@"; }

# planted FAULT...: each must end the process
planted() {
    for fault; do
        if check planted "$fault" >"$folder/planted.log" 2>&1 || ! grep -q planted.cpp "$folder/planted.log"; then
            cat "$folder/planted.log" >&2
            echo "sanitize: the planted fault $fault was not found" >&2
            exit 1
        fi
    done
}

memory() (
    build memory "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
    LD_PRELOAD="$("$CXX" -print-file-name=libasan.so) $("$CXX" -print-file-name=libstdc++.so)"
    export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
    planted heap shift
    check tests
    check networks 500
)

threads() (
    openmp=$(readlink -f "$("$CXX" -print-file-name=libomp.so.5)") || openmp=
    archer=$(dirname "$openmp")/libarcher.so
    if [ ! -f "$archer" ]; then
        echo "spdnn: make sanitize needs LLVM's OpenMP with Archer; it is missing (apt-get install libomp-dev)" >&2
        exit 1
    fi
    build threads "-fsanitize=thread"
    export LD_PRELOAD="$("$CXX" -print-file-name=libtsan.so) $openmp" OMP_TOOL_LIBRARIES="$archer"
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1"
    check planted none
    planted race
    check tests tests/kernels
    check networks 100
    check models 50
    check operations
)

for which in ${*:-memory threads}; do
    case $which in
    memory | threads) "$which" ;;
    *)
        echo "spdnn: make sanitize takes memory or threads, not $which" >&2
        exit 1
        ;;
    esac
    echo "sanitize: $which: nothing found"
done
