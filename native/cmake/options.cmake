# What the build is told, and the flags of every target of ours.

set(SLLM_JSON_INCLUDE "" CACHE PATH "folder that has nlohmann/json.hpp (required)")
set(SLLM_LLAMA_SOURCE "" CACHE PATH "llama.cpp source folder; empty: no llama worker")
set(SLLM_CATCH_INCLUDE "" CACHE PATH "folder that has catch2/catch.hpp (2.13); empty: no unit tests")
set(SLLM_SANITIZE "none" CACHE STRING "none, address (with undefined behaviour) or thread")
set_property(CACHE SLLM_SANITIZE PROPERTY STRINGS none address thread)

if(NOT EXISTS "${SLLM_JSON_INCLUDE}/nlohmann/json.hpp")
  message(FATAL_ERROR "cannot find nlohmann/json.hpp; give -DSLLM_JSON_INCLUDE=FOLDER")
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_package(Threads REQUIRED)

# Warnings are for our code only: link this privately, never from llama.cpp.
add_library(sllm_flags INTERFACE)
target_compile_options(sllm_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor -Woverloaded-virtual -Wdouble-promotion -Wformat=2
  -Wimplicit-fallthrough -Werror
  # GCC 12 sees overlapping copies in std::string's operator+ (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)

if(NOT SLLM_SANITIZE STREQUAL "none")
  # GCC warns of uninitialised values in code that the sanitizers have added; it says so itself.
  target_compile_options(sllm_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# Sanitizers hold for everything in the tree, llama.cpp included if it is built here.
if(SLLM_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SLLM_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT SLLM_SANITIZE STREQUAL "none")
  message(FATAL_ERROR "cannot use SLLM_SANITIZE=${SLLM_SANITIZE}; give none, address or thread")
endif()
