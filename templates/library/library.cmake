
# ---- the library --------------------------------------------------------------------------------

# lib$name$.a is one object: of its symbols only the functions of $name$.h can be seen from outside,
# so that several libraries fit into one program. By `cmake --install` it becomes a package:
# find_package($name$) gives the target $name$::$name$, and $name$::fortran, the Fortran module.
if(TPGEN_TRANSPORT STREQUAL "shared")
  return() # its caller's communicator is MPI's
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(NOT CMAKE_OBJCOPY)
  message(FATAL_ERROR "objcopy is missing; its Debian package: binutils")
endif()

set(parts "")
set(part_targets "")
function(add_part part)
  add_library(${part} OBJECT ${ARGN})
  target_link_libraries(${part} PRIVATE common)
  target_compile_definitions(${part} PRIVATE TPGEN_LIBRARY ${library_definitions})
  set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)
  set(parts ${parts} $<TARGET_OBJECTS:${part}> PARENT_SCOPE)
  set(part_targets ${part_targets} ${part} PARENT_SCOPE)
endfunction()

set(library_runtime
  runtime/base/json_memory.c runtime/base/open_input.c runtime/base/philox.c runtime/base/program.c
  runtime/checkpoint/across_ranks.c runtime/checkpoint/checkpoint.c runtime/checkpoint/save_folder.c
  runtime/checkpoint/save_layout.c runtime/tensors/checksums.c runtime/formats/crc32c.c
  runtime/formats/packed.c runtime/formats/safetensors.c runtime/formats/safetensors_set.c
  runtime/formats/torch_archive.c
  runtime/library/data.c runtime/library/library.c runtime/library/sequences.c
  runtime/library/watch.c
  runtime/metrics/validation_results.c runtime/tensors/adapters.c runtime/tensors/file_elements.c
  runtime/tensors/initial_values.c runtime/tensors/integer_inputs.c runtime/tensors/row_bounds.c
  runtime/tensors/stored_blocks.c runtime/tensors/tensor_table.c
  runtime/tensors/surplus.c runtime/tensors/tensors.c)
set_source_files_properties(runtime/library/library.c runtime/library/sequences.c PROPERTIES COMPILE_OPTIONS -fvisibility=default)
$target$
foreach(entry IN LISTS RANKS)
  string(REPLACE ":" ";" entry ${entry})
  list(GET entry 0 rank)
  list(GET entry 1 step)
  add_part(library_rank${rank} rank${rank}.$source$)
  target_compile_definitions(library_rank${rank} PRIVATE this_rank=rank${rank})
  if(NOT TARGET library_${step})
    add_part(library_${step} ${step}.$source$)
    target_compile_options(library_${step} PRIVATE ${watched}) # of the stand-in for CUDA
  endif()
  # The program's own: run.sh builds it.
  set_target_properties(rank${rank} ${step} PROPERTIES EXCLUDE_FROM_ALL ON)
endforeach()

set(symbols ${CMAKE_CURRENT_SOURCE_DIR}/library_symbols.txt)
set(whole ${CMAKE_CURRENT_BINARY_DIR}/$name$.o)
add_custom_command(OUTPUT ${whole}
  COMMAND ${CMAKE_LINKER} -r -o ${whole} ${parts}
  COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${symbols} ${whole}
  DEPENDS ${part_targets} ${parts} ${symbols} COMMAND_EXPAND_LISTS VERBATIM) # make needs the targets
add_library(library STATIC ${whole})
add_library($name$::$name$ ALIAS library)
set_target_properties(runtime PROPERTIES EXCLUDE_FROM_ALL ON)
if(TARGET kernels)
  set_target_properties(kernels PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
get_target_property(library_needs common INTERFACE_LINK_LIBRARIES)
list(APPEND library_needs MPI::MPI_C ${library_cxx})
target_link_libraries(library INTERFACE ${library_needs})
target_include_directories(library INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(library PROPERTIES OUTPUT_NAME $name$ LINKER_LANGUAGE ${library_language})

# lib$name$.so, and beside it the module for Python, if there is one.
set(python ${CMAKE_CURRENT_SOURCE_DIR}/$name$.py)
if(EXISTS ${python})
  option(BUILD_SHARED_LIBS "lib$name$.so, too" ON)
endif()
if(BUILD_SHARED_LIBS)
  add_library(library_shared SHARED ${whole})
  add_dependencies(library_shared library) # which makes the object
  target_link_libraries(library_shared PRIVATE ${library_needs})
  set_target_properties(library_shared PROPERTIES OUTPUT_NAME $name$ LINKER_LANGUAGE ${library_language})
  install(TARGETS library_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(EXISTS ${python})
  configure_file(${python} ${CMAKE_CURRENT_BINARY_DIR}/$name$.py COPYONLY)
  install(FILES ${python} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# The package names what pkg-config found by its files.
set(needs "")
foreach(one IN LISTS library_needs)
  if(one MATCHES "^PkgConfig::")
    get_target_property(one ${one} INTERFACE_LINK_LIBRARIES)
  endif()
  list(APPEND needs ${one})
endforeach()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/$name$)
configure_package_config_file($name$Config.cmake.in $name$Config.cmake
  INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR)
install(TARGETS library ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES $name$.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES $name$.f90 DESTINATION ${CMAKE_INSTALL_DATADIR}/$name$)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/$name$Config.cmake DESTINATION ${package_dir})
