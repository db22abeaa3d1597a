# How our own targets are compiled. Nothing here touches a target of somebody else's project.

set(PAGESTASH_SANITIZE_FLAGS_address -fsanitize=address,undefined -fno-sanitize-recover=all)
set(PAGESTASH_SANITIZE_FLAGS_thread -fsanitize=thread)
if(PAGESTASH_SANITIZE AND NOT PAGESTASH_SANITIZE_FLAGS_${PAGESTASH_SANITIZE})
  message(FATAL_ERROR
    "PAGESTASH_SANITIZE is \"${PAGESTASH_SANITIZE}\"; allowed are address, thread, or empty")
endif()

function(pagestash_sanitize target sanitizer)
  set(flags ${PAGESTASH_SANITIZE_FLAGS_${sanitizer}})
  if(flags)
    list(APPEND flags -g -fno-omit-frame-pointer)
  endif()
  if(PAGESTASH_FUZZ)
    list(APPEND flags -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(${target} PRIVATE ${flags})
  target_link_options(${target} PRIVATE ${flags})
endfunction()

# Without optimisation a line is what was written; the counters are changed atomically, since threads do.
# Whoever links such an object counts, too. A child of fork ends by _exit, which loses what it counted:
# tests/coverage/leave.c stands in for it.
set(PAGESTASH_COUNT_FLAGS "")
if(PAGESTASH_COVERAGE)
  set(PAGESTASH_COUNT_FLAGS --coverage -fprofile-update=atomic -O0)
  add_link_options(--coverage -Wl,--wrap=_exit)
endif()
function(pagestash_count target)
  target_compile_options(${target} PRIVATE ${PAGESTASH_COUNT_FLAGS})
endfunction()

# Language level, warnings, sanitizers, and the include paths of this repository.
function(pagestash_compile_options target)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>
    # Messages name host/pool.c, not where somebody built it.
    $<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  pagestash_sanitize(${target} "${PAGESTASH_SANITIZE}")
endfunction()

# Gated activations are compiled for several instruction sets, one of which is chosen at run time. What is
# fused is written so in the source: nothing else may be. Properties of a source hold in the folder that
# sets them, so each folder that compiles these calls this.
function(pagestash_glu_source_options)
  set(common -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off)
  set(avx2 "")
  set(avx512 "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(avx2 -mavx2 -mfma)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
  endif()
  set(rows ${PROJECT_SOURCE_DIR}/kernels/host/glu_rows)
  set_source_files_properties(${rows}.c PROPERTIES COMPILE_OPTIONS "${common}")
  set_source_files_properties(${rows}_avx2.c PROPERTIES COMPILE_OPTIONS "${common};${avx2}")
  set_source_files_properties(${rows}_avx512.c PROPERTIES COMPILE_OPTIONS "${common};${avx512}")
endfunction()
