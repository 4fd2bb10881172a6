# Cross-compiles for 64-bit ARM Linux with Debian's toolchain (g++-aarch64-linux-gnu, libc6-dev-arm64-cross) and runs
# what was built under user emulation (qemu-user-static):
#   cmake -S native -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=native/cmake/aarch64-toolchain.cmake
#         -Dggml_DIR=<aarch64 libggml>/lib64/cmake/ggml -DEDGELLM_PYTHON=OFF -DEDGELLM_TESTS=ON
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
