# Headers, libraries, CMake package and pkg-config file. All of it can be moved after installation.

include(CMakePackageConfigHelpers)

# Components, which become Debian's packages (package.cmake): library, dev, tools.
install(TARGETS pagestash pagestash_static EXPORT pagestash-targets
  LIBRARY COMPONENT library NAMELINK_COMPONENT dev
  ARCHIVE COMPONENT dev)
install(DIRECTORY include/pagestash DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT licence)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pagestash)
configure_package_config_file(third_party/pagestash-config.cmake.in
  ${PROJECT_BINARY_DIR}/pagestash-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pagestash-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT pagestash-targets NAMESPACE pagestash:: DESTINATION ${package_dir} COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/pagestash-config.cmake
  ${PROJECT_BINARY_DIR}/pagestash-config-version.cmake DESTINATION ${package_dir} COMPONENT dev)

set(pc_libs_private "-pthread")
if(PAGESTASH_HAVE_CUDA) # where the toolkit is on another machine nobody knows: LIBRARY_PATH says it
  string(APPEND pc_libs_private " -lcudart_static -lrt")
endif()
string(APPEND pc_libs_private " -ldl")
string(REGEX REPLACE "[^/]+" ".." pc_prefix ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(third_party/pagestash.pc.in ${PROJECT_BINARY_DIR}/pagestash.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pagestash.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT dev)
