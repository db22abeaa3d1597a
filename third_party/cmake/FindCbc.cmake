# Target Cbc::Cbc: COIN-OR's branch and cut, by its C interface.
find_library(CBC_LIBRARY Cbc)
find_library(CBC_SOLVER_LIBRARY CbcSolver)
find_path(CBC_INCLUDE_DIR Cbc_C_Interface.h PATH_SUFFIXES coin coin-or)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cbc
  REQUIRED_VARS CBC_SOLVER_LIBRARY CBC_LIBRARY CBC_INCLUDE_DIR)
if(Cbc_FOUND AND NOT TARGET Cbc::Cbc)
  add_library(Cbc::Cbc UNKNOWN IMPORTED)
  set_target_properties(Cbc::Cbc PROPERTIES
    IMPORTED_LOCATION ${CBC_SOLVER_LIBRARY}
    INTERFACE_LINK_LIBRARIES ${CBC_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CBC_INCLUDE_DIR})
endif()
