# Part cpu: every object of _kernels but its device images, _C, and the program _probe.
# One object for each instruction set, from one source.
function(freewheel_isa name isa)
  add_library(isa_${name} OBJECT kernels/cpu/kernels.cpp)
  target_include_directories(isa_${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(isa_${name} PRIVATE "FW_ISA_NAME=\"${isa}\""
                                                 FW_ISA_TABLE=fw_cpu_kernels_${name})
  target_compile_options(isa_${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3> -fno-math-errno
                                             -fno-trapping-math -ffp-contract=fast -fno-exceptions
                                             -fno-rtti ${ARGN})
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

# The program that asks the driver. With the _start of probe.c it also runs on glibc 2.28.
add_executable(freewheel_probe probe/probe.c)
set_target_properties(freewheel_probe PROPERTIES OUTPUT_NAME "_probe")
target_include_directories(freewheel_probe PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
# "Call" is a pointer to a function of any parameters, which C17 has and C23 has no more.
target_compile_options(freewheel_probe PRIVATE -fPIE -Wno-strict-prototypes)
target_link_options(freewheel_probe PRIVATE -nostartfiles -pie)
target_link_libraries(freewheel_probe PRIVATE ${FREEWHEEL_DL})
install(TARGETS freewheel_probe RUNTIME DESTINATION freewheel)
