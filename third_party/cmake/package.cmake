# Debian packages of what is installed: the library, what one needs to build with it, and the command.
# `cpack -G DEB` in a build that was configured with CMAKE_INSTALL_PREFIX=/usr: docs/install.md has the lines.

set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "pages for the live bytes of MoE layers")
set(CPACK_PACKAGE_VENDOR "the pagestash authors")
set(CPACK_PACKAGE_CONTACT "The pagestash authors <maintainers@pagestash.invalid>")
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL library dev tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(library libpagestash${PAGESTASH_SOVERSION})
set(what "Activations of Mixture-of-Experts layers lie in buffers that are sized for the
worst routing. pagestash copies the rows that are live into pages of a pool on
the GPU after a layer's forward, and back before its backward, inside CUDA
graphs.")

# What depends on the library names this version of it: before 1.0 a minor version may change the interface.
file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs
  "libpagestash ${PAGESTASH_SOVERSION} ${library} (>= ${PROJECT_VERSION})\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
  "${PROJECT_BINARY_DIR}/debian/shlibs;${PROJECT_BINARY_DIR}/debian/triggers")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "${what}

This package has the shared library.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libpagestash-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION}), libc6-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION "${what}

This package has the headers, the static library, and what CMake and pkg-config
find it by.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME pagestash)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "${what}

This package has the command, which replays routing, plans and estimates
memory, and simulates schedules, with its manual and the documents.")

# Each package has the licence and the changelog. The changelog of Debian's form has one entry for the version
# that is packaged, of the day of its commit.
find_program(GZIP gzip)
execute_process(COMMAND git log -1 --format=%aD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  OUTPUT_VARIABLE day OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT day)
  set(day "Thu, 01 Jan 1970 00:00:00 +0000")
endif()
function(pagestash_package_documents component package)
  set(folder ${PROJECT_BINARY_DIR}/debian/${package})
  file(WRITE ${folder}/changelog "pagestash (${PROJECT_VERSION}) unstable; urgency=medium

  * See CHANGELOG.md of the source.

 -- ${CPACK_PACKAGE_CONTACT}  ${day}
")
  execute_process(COMMAND ${GZIP} -9nf ${folder}/changelog)
  install(FILES ${folder}/changelog.gz ${PROJECT_SOURCE_DIR}/third_party/debian/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
# CPack writes scripts that call ldconfig, whatever the triggers say.
file(WRITE ${PROJECT_BINARY_DIR}/debian/overrides/${library} "${library}: maintscript-calls-ldconfig\n")
install(FILES ${PROJECT_BINARY_DIR}/debian/overrides/${library}
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT library EXCLUDE_FROM_ALL)
if(GZIP)
  pagestash_package_documents(library ${library})
  pagestash_package_documents(dev libpagestash-dev)
  pagestash_package_documents(tools pagestash)
endif()

include(CPack)
