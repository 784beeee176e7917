# Part torch: the binding. torch is never imported and find_package(Torch) never asked, since it
# wants a CUDA toolkit for a CUDA torch; the folder is given, or found by Python's find_spec.
set(torch_root "${WHEELFAB_TORCH_ROOT}")
set(torch_abi "${WHEELFAB_TORCH_ABI}")
set(cxx11_abi "${WHEELFAB_CXX11_ABI}")
if(NOT torch_root)
  include("${CMAKE_CURRENT_SOURCE_DIR}/cmake/find_torch.cmake")
endif()
if(NOT EXISTS "${torch_root}/include/torch/library.h")
  message(FATAL_ERROR "WHEELFAB_TORCH_ROOT: no torch headers in ${torch_root}/include")
endif()

freewheel_library(freewheel_torch "_torch" freewheel_bind torch/${torch_abi}.cpp torch/ops.cpp
                  torch/checks.cpp torch/bind.cpp compat/single_threaded.c compat/libstdcxx.cpp)
target_include_directories(freewheel_torch SYSTEM PRIVATE
  "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
target_compile_definitions(freewheel_torch PRIVATE _GLIBCXX_USE_CXX11_ABI=${cxx11_abi})
target_compile_options(freewheel_torch PRIVATE "-ffile-prefix-map=${torch_root}=torch")

if(torch_abi STREQUAL "stable")
  # 2.10 as torch packs it: major, minor, patch, a byte each, from the top.
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)$" matched "${WHEELFAB_TORCH_TARGET}")
  if(NOT matched)
    message(FATAL_ERROR "WHEELFAB_TORCH_TARGET is '${WHEELFAB_TORCH_TARGET}'; it must be like 2.10")
  endif()
  math(EXPR target "(${CMAKE_MATCH_1} << 56) | (${CMAKE_MATCH_2} << 48)" OUTPUT_FORMAT HEXADECIMAL)
  target_compile_definitions(freewheel_torch PRIVATE TORCH_TARGET_VERSION=${target})
  # Headers suffice: a library without content stands in for libtorch_cpu.so at the link.
  set(stand_in "${CMAKE_CURRENT_BINARY_DIR}/stand-in")
  file(CONFIGURE OUTPUT "${stand_in}.c" CONTENT "typedef int nothing;\n")
  add_library(stand_in SHARED "${stand_in}.c")
  set_target_properties(stand_in PROPERTIES OUTPUT_NAME torch_cpu
                        LIBRARY_OUTPUT_DIRECTORY "${stand_in}")
  target_link_options(freewheel_torch PRIVATE -Wl,-z,undefs)
  target_link_libraries(freewheel_torch PRIVATE -Wl,--push-state,--no-as-needed stand_in
                                                -Wl,--pop-state)
elseif(torch_abi STREQUAL "classic")
  set_source_files_properties(torch/classic.cpp PROPERTIES COMPILE_OPTIONS -fopenmp)
  # libstdc++ first: older torch libraries export parts of it, without its symbol versions.
  target_link_libraries(freewheel_torch PRIVATE stdc++ "${torch_root}/lib/libtorch_cpu.so"
                                                "${torch_root}/lib/libc10.so")
else()
  message(FATAL_ERROR "WHEELFAB_TORCH_ABI is '${torch_abi}'; it must be classic or stable")
endif()
