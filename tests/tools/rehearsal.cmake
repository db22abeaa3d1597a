# The programs of tools/gpu-package.sh, linked again with the runtime of pretended_gpu.c: it comes before cudart's,
# which so is not linked. They lie in tests/rehearsal of the build.

add_library(pretended_gpu OBJECT tools/pretended_driver.c tools/pretended_gpu.c tools/pretended_launch.c)
pagestash_compile_options(pretended_gpu)
target_include_directories(pretended_gpu SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(pretended_gpu PRIVATE -Wno-unused-parameter)
set_target_properties(pretended_gpu PROPERTIES POSITION_INDEPENDENT_CODE ON)

set(rehearsal ${CMAKE_CURRENT_BINARY_DIR}/rehearsal)

# pagestash_rehearsed(NAME SOURCES LIBRARIES)
function(pagestash_rehearsed name sources libraries)
  add_executable(rehearsal_${name} ${sources} $<TARGET_OBJECTS:pretended_gpu>)
  pagestash_compile_options(rehearsal_${name})
  target_link_libraries(rehearsal_${name} PRIVATE ${libraries})
  target_link_options(rehearsal_${name} PRIVATE -Wl,--export-dynamic-symbol=pretended_launched)
  set_target_properties(rehearsal_${name} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE CXX
    CUDA_RUNTIME_LIBRARY None RUNTIME_OUTPUT_DIRECTORY ${rehearsal})
endfunction()

file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(example ${examples})
  cmake_path(GET example STEM stem)
  pagestash_rehearsed(example_${stem} ${example} pagestash_static)
endforeach()
pagestash_rehearsed(pagestash "$<TARGET_OBJECTS:pagestash-cli>"
  "pagestash_estimate;pagestash_pictures;pagestash_tool;${CMAKE_DL_LIBS}")
pagestash_rehearsed(pagestash_tests "$<TARGET_OBJECTS:pagestash_tests>"
  "pagestash_simt;pagestash_ptx;pagestash_oracle;pagestash_static;GTest::gtest;Threads::Threads;${CMAKE_DL_LIBS}")
foreach(target pagestash_bench pagestash_schedule_bench)
  string(REPLACE _ - name ${target})
  pagestash_rehearsed(${name} "$<TARGET_OBJECTS:${target}>"
    "pagestash_bench_common;pagestash_static;Threads::Threads;m")
endforeach()
pagestash_rehearsed(pagestash-placement "$<TARGET_OBJECTS:pagestash_placement>" "")

add_library(rehearsal_library SHARED $<TARGET_OBJECTS:pagestash_objects> $<TARGET_OBJECTS:pretended_gpu>)
target_link_libraries(rehearsal_library PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(rehearsal_library PRIVATE
  -Wl,--version-script=${PROJECT_BINARY_DIR}/pagestash.map -Wl,--as-needed -Wl,-z,defs)
set_target_properties(rehearsal_library PROPERTIES OUTPUT_NAME pagestash LINKER_LANGUAGE C CUDA_RUNTIME_LIBRARY None
  LIBRARY_OUTPUT_DIRECTORY ${rehearsal})

# What the tools load where it is there: products, and NCCL of one rank.
add_library(pretended_cublas MODULE tools/pretended_cublas.c)
pagestash_compile_options(pretended_cublas)
target_include_directories(pretended_cublas SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
set_target_properties(pretended_cublas PROPERTIES PREFIX "" OUTPUT_NAME libcublas SUFFIX .so.13
  LIBRARY_OUTPUT_DIRECTORY ${rehearsal}_libraries)

set(arguments ${PROJECT_SOURCE_DIR} ${rehearsal})
pagestash_add_test(long.tools.gpu_rehearsal "long;tools" 120 Python3::Interpreter
  ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_gpu_rehearsal.py ${arguments})
set(stages Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_gpu_stages.py ${arguments})
pagestash_add_test(tools.gpu_first_rehearsed "test;tools" 120 ${stages} First)
pagestash_add_test(long.tools.gpu_stages "long;tools" 600 ${stages} Stages Broken)
if(TARGET python-tests)
  add_dependencies(python-tests rehearsal_library rehearsal_pagestash)
endif()
