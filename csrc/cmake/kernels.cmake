# Part kernels: the objects of part cpu, and one .nv_fatbin container for each device image.
set(fatbins "")
if(WHEELFAB_DEVICE)
  file(GLOB fatbins CONFIGURE_DEPENDS "${WHEELFAB_DEVICE}/*.fatbin")
  if(NOT fatbins)
    message(FATAL_ERROR "WHEELFAB_DEVICE: no *.fatbin in ${WHEELFAB_DEVICE}")
  endif()
  list(SORT fatbins)
  enable_language(ASM)
endif()

set(containers "")
set(declarations "")
set(rows "")
set(count 0)
foreach(fatbin IN LISTS fatbins)
  get_filename_component(stem "${fatbin}" NAME_WE)
  if(NOT stem MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR "WHEELFAB_DEVICE: ${stem}.fatbin: the name must be a C identifier")
  endif()
  string(APPEND containers
    "  .balign 8\n  .hidden fw_image_${stem}_begin\n  .globl fw_image_${stem}_begin\n"
    "fw_image_${stem}_begin:\n  .incbin \"${fatbin}\"\n"
    "  .hidden fw_image_${stem}_end\n  .globl fw_image_${stem}_end\nfw_image_${stem}_end:\n")
  string(APPEND declarations
    "extern const unsigned char fw_image_${stem}_begin[] __attribute__((visibility(\"hidden\")));\n"
    "extern const unsigned char fw_image_${stem}_end[] __attribute__((visibility(\"hidden\")));\n")
  string(APPEND rows "    {\"${stem}\", fw_image_${stem}_begin, fw_image_${stem}_end},\n")
  math(EXPR count "${count} + 1")
endforeach()
if(count EQUAL 0)
  set(rows "    {0, 0, 0},\n")
endif()

set(generated "${CMAKE_CURRENT_BINARY_DIR}/images.c")
file(CONFIGURE OUTPUT "${generated}" @ONLY CONTENT
"// Made by cmake/kernels.cmake from the device images of this build.
#include \"images/images.h\"

@declarations@
const FwImage fw_images[] = {
@rows@};
const int32_t fw_image_count = @count@;
")
set(images "${generated}")
if(fatbins)
  set(assembled "${CMAKE_CURRENT_BINARY_DIR}/containers.S")
  file(CONFIGURE OUTPUT "${assembled}" @ONLY CONTENT
"  .section .nv_fatbin,\"a\",@progbits
@containers@  .balign 8
  .section .note.GNU-stack,\"\",@progbits
")
  set_source_files_properties("${assembled}" PROPERTIES OBJECT_DEPENDS "${fatbins}"
                              COMPILE_OPTIONS "-Wa,--noexecstack")
  list(APPEND images "${assembled}")
endif()

freewheel_library(freewheel_kernels "_kernels" freewheel_kernels ${images})
set_target_properties(freewheel_kernels PROPERTIES LINKER_LANGUAGE CXX)
if(WHEELFAB_USES_CPU)
  set(archive "${WHEELFAB_USES_CPU}/lib/libfreewheel_cpu.a")
  if(NOT EXISTS "${archive}")
    message(FATAL_ERROR "WHEELFAB_USES_CPU: no ${archive}")
  endif()
elseif(TARGET freewheel_cpu)
  set(archive "$<TARGET_FILE:freewheel_cpu>")
  add_dependencies(freewheel_kernels freewheel_cpu)
else()
  message(FATAL_ERROR "part kernels needs WHEELFAB_USES_CPU, the folder part cpu was installed to")
endif()
set_property(TARGET freewheel_kernels APPEND PROPERTY LINK_DEPENDS "${archive}")
target_link_options(freewheel_kernels PRIVATE
  "-Wl,--whole-archive,${archive},--no-whole-archive")
