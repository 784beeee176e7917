# Sets torch_root, torch_abi, cxx11_abi and torch_version from the torch that Python finds.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s and s.origin else '')"
  OUTPUT_VARIABLE torch_origin OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT torch_origin)
  message(FATAL_ERROR "no torch beside ${Python_EXECUTABLE}: install torch there and build with "
                      "--no-build-isolation, or install a wheel")
endif()
get_filename_component(torch_root "${torch_origin}" DIRECTORY)
file(STRINGS "${torch_root}/version.py" version_line REGEX "^__version__ *=")
string(REGEX MATCH "([0-9]+)\\.([0-9]+)[^'\"]*" torch_version "${version_line}")
if("${CMAKE_MATCH_1}.${CMAKE_MATCH_2}" VERSION_GREATER_EQUAL "${WHEELFAB_TORCH_TARGET}")
  set(torch_abi stable)
else()
  set(torch_abi classic)
endif()
file(STRINGS "${torch_root}/share/cmake/Torch/TorchConfig.cmake" abi_line
     REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=([01])" abi_matched "${abi_line}")
if(abi_matched)
  set(cxx11_abi "${CMAKE_MATCH_1}")
endif()
