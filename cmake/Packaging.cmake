# SPDX-License-Identifier: Apache-2.0
# Installs the library for its users: shared library, headers, CMake package, pkg-config file, vcoll-info, documents.
# `cpack -G DEB` in the build directory makes one Debian package of the same.
include(CMakePackageConfigHelpers)

set(vcoll_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vcoll)
install(TARGETS vcoll EXPORT vcollTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vcoll DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
if(TARGET vcoll-info)
  install(TARGETS vcoll-info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT vcollTargets NAMESPACE vcoll:: DESTINATION ${vcoll_cmake_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/vcollConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/package/vcollConfig.cmake INSTALL_DESTINATION ${vcoll_cmake_dir})
# Before 1.0 a new minor version may change the ABI; the soname follows the major version.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/vcollConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/vcollConfig.cmake ${PROJECT_BINARY_DIR}/package/vcollConfigVersion.cmake
        DESTINATION ${vcoll_cmake_dir})

# The prefix in vcoll.pc is relative to the file, so that an installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE vcoll_pc_include)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE vcoll_pc_lib)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE vcoll_pc_prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/vcoll.pc.in ${PROJECT_BINARY_DIR}/package/vcoll.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/vcoll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

foreach(document LICENSE README.md CHANGELOG.md)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${document})
    install(FILES ${PROJECT_SOURCE_DIR}/${document} DESTINATION ${CMAKE_INSTALL_DOCDIR})
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_PACKAGE_NAME vcoll)
set(CPACK_PACKAGE_VENDOR "vcoll")
set(CPACK_PACKAGE_CONTACT "vcoll maintainers")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_STRIP_FILES ON)
include(CPack)
