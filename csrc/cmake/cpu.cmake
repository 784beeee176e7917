# Part cpu: every object of _kernels but its device images, and _C.
# One object for each instruction set, from one source.
function(freewheel_isa name isa)
  add_library(isa_${name} OBJECT kernels/cpu/kernels.cpp)
  target_include_directories(isa_${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(isa_${name} PRIVATE "FW_ISA_NAME=\"${isa}\""
                                                 FW_ISA_TABLE=fw_cpu_kernels_${name})
  target_compile_options(isa_${name} PRIVATE -O3 -fno-math-errno -fno-trapping-math
                                             -ffp-contract=fast -fno-exceptions -fno-rtti ${ARGN})
endfunction()
freewheel_isa(v2 "x86-64-v2" -march=x86-64-v2)
freewheel_isa(avx2 "avx2" -march=x86-64-v2 -mavx2 -mfma -mf16c)
# gcc 12 calls its own AVX-512 intrinsics uninitialised (GCC bug 105593).
freewheel_isa(avx512 "avx512" -march=x86-64-v2 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq
              -mavx512vl -Wno-uninitialized -Wno-maybe-uninitialized)

file(GLOB cpu_sources CONFIGURE_DEPENDS cuda/*.cpp driver/*.cpp images/*.cpp)
add_library(freewheel_cpu STATIC
  table.cpp kernels/cpu/cpu.cpp kernels/cpu/isa.cpp ${cpu_sources}
  compat/single_threaded.c compat/libstdcxx.cpp
  $<TARGET_OBJECTS:isa_v2> $<TARGET_OBJECTS:isa_avx2> $<TARGET_OBJECTS:isa_avx512>)
target_include_directories(freewheel_cpu PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
if(WHEELFAB_PART STREQUAL "cpu")
  install(TARGETS freewheel_cpu ARCHIVE DESTINATION lib)
endif()

freewheel_library(freewheel_c "_C.abi3" PyInit__C module/module.c)
target_link_options(freewheel_c PRIVATE -Wl,-z,undefs)  # Python's symbols come with the interpreter
