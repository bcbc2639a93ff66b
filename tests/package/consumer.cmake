# SPDX-License-Identifier: Apache-2.0
# A project that uses an installed vcoll; copied beside examples/allgatherv.c by package_test.sh.
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
find_package(vcoll ${WANT_VERSION} REQUIRED)
add_executable(allgatherv allgatherv.c)
set_property(TARGET allgatherv PROPERTY C_STANDARD 99)
target_link_libraries(allgatherv PRIVATE vcoll::vcoll)
