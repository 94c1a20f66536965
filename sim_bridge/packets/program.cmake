# How programs of networks are built, with JSON_INCLUDE: add_program(NAME SOURCE...).
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(CMAKE_CXX_FLAGS MATCHES "-O") # a level in CXXFLAGS, as that of `make sanitize`, would lose against the build type's
  string(REGEX REPLACE "-O[0-9]" "" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
endif()
set(CMAKE_UNITY_BUILD ON) # a third less to compile

function(add_program NAME)
  add_executable(${NAME} ${ARGN})
  target_compile_features(${NAME} PRIVATE cxx_std_20)
  set_target_properties(${NAME} PROPERTIES CXX_EXTENSIONS OFF)
  target_include_directories(${NAME} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/..")
  target_include_directories(${NAME} SYSTEM PRIVATE "${JSON_INCLUDE}")
  target_compile_options(${NAME} PRIVATE -Wall -Wextra)
  target_link_libraries(${NAME} PRIVATE ${CMAKE_DL_LIBS})
endfunction()
