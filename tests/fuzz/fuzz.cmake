# X_fuzz.c with corpus/X/: a libFuzzer target under PAGESTASH_FUZZ, else a replay of the corpus.

set(PAGESTASH_FUZZ_SECONDS 30 CACHE STRING "Seconds that each fuzz target runs in ctest")
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_fuzz.c)

foreach(source ${fuzz_sources})
  cmake_path(GET source STEM target)
  string(REGEX REPLACE "_fuzz$" "" name ${target})
  set(corpus ${CMAKE_CURRENT_LIST_DIR}/corpus/${name})
  if(name STREQUAL "estimate" AND NOT TARGET pagestash_estimate)
    continue() # a part of the command, which this build lacks
  endif()
  add_executable(${target} ${source})
  pagestash_compile_options(${target})
  target_link_libraries(${target} PRIVATE pagestash_oracle pagestash_static)
  if(name STREQUAL "estimate")
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_link_libraries(${target} PRIVATE pagestash_estimate)
  endif()
  if(PAGESTASH_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set(found ${CMAKE_CURRENT_BINARY_DIR}/fuzz/${name})
    file(MAKE_DIRECTORY ${found})
    math(EXPR timeout "${PAGESTASH_FUZZ_SECONDS} + 120")
    pagestash_add_test(fuzz.${name} "test;fuzz" ${timeout} ${target}
      -max_total_time=${PAGESTASH_FUZZ_SECONDS} -timeout=60 -artifact_prefix=${found}- -verbosity=0
      -print_final_stats=1 ${found} ${corpus})
  elseif(PAGESTASH_TESTS)
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/replay_main.c)
    pagestash_add_test(fuzz.${name} "test;fuzz" 120 ${target} ${corpus})
  endif()
endforeach()
