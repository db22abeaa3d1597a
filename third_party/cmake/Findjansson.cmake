# Target jansson::jansson; the static library where there is one for a wheel, which must stand alone.
if(SKBUILD)
  find_library(JANSSON_LIBRARY NAMES libjansson.a jansson)
else()
  find_library(JANSSON_LIBRARY jansson)
endif()
find_path(JANSSON_INCLUDE_DIR jansson.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(jansson REQUIRED_VARS JANSSON_LIBRARY JANSSON_INCLUDE_DIR)
if(jansson_FOUND AND NOT TARGET jansson::jansson)
  add_library(jansson::jansson UNKNOWN IMPORTED)
  set_target_properties(jansson::jansson PROPERTIES
    IMPORTED_LOCATION ${JANSSON_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${JANSSON_INCLUDE_DIR})
endif()
