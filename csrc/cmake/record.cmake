# _build.json of a wheel built without the factory: no cell, no device images.
file(STRINGS "${torch_root}/version.py" version_line REGEX "^__version__ *=")
string(REGEX MATCH "[0-9]+\\.[0-9]+[^'\"]*" torch_version "${version_line}")
if(torch_abi STREQUAL "stable")
  set(record_target "\"${WHEELFAB_TORCH_TARGET}\"")
  set(record_requirement ">=${WHEELFAB_TORCH_TARGET}")
  set(record_pin "stable >= ${WHEELFAB_TORCH_TARGET}")
else()
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)(\\.[0-9]+)?" public "${torch_version}")
  math(EXPR next_minor "${CMAKE_MATCH_2} + 1")
  set(record_target "null")
  set(record_pin "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
  set(record_requirement ">=${public},<${CMAKE_MATCH_1}.${next_minor}")
endif()
if(cxx11_abi)
  set(record_abi "true")
else()
  set(record_abi "false")
endif()
if(DEFINED SKBUILD_PROJECT_VERSION_FULL)
  set(record_version "\"${SKBUILD_PROJECT_VERSION_FULL}\"")
else()
  set(record_version "null")
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(record_profile debug)
else()
  set(record_profile release)
endif()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/_build.json" @ONLY CONTENT [=[
{
  "schema": 1,
  "project": "freewheel",
  "version": @record_version@,
  "cell": null,
  "profile": "@record_profile@",
  "variant": "cpu",
  "cuda": null,
  "archs": [],
  "driver": null,
  "python": ">=3.10",
  "python_tag": null,
  "glibc": null,
  "platform": null,
  "torch": {
    "pin": "@record_pin@",
    "abi": "@torch_abi@",
    "requirement": "@record_requirement@",
    "headers": "@torch_version@",
    "target": @record_target@,
    "cxx11_abi": @record_abi@,
    "source": "installed"
  },
  "compilers": {"host": "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@", "device": null},
  "commit": null,
  "plan": null
}
]=])
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/_build.json" DESTINATION freewheel)
