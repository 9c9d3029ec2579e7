# Provides the target `llama` (headers and static libraries of llama.cpp) and builds the llama
# worker on it. SLLM_LLAMA_PREFIX is an installed copy, which the build script makes once per
# machine; without it llama.cpp is built here from SLLM_LLAMA_SOURCE, as part of this tree.

set(SLLM_LLAMA_PREFIX "" CACHE PATH "installed llama.cpp (else built from SLLM_LLAMA_SOURCE)")

if(SLLM_LLAMA_PREFIX)
  find_package(Threads REQUIRED)
  find_package(llama CONFIG REQUIRED PATHS "${SLLM_LLAMA_PREFIX}" NO_DEFAULT_PATH)
else()
  set(BUILD_SHARED_LIBS OFF)
  foreach(part APP COMMON EXAMPLES IS_DEV SERVER TESTS TOOLS)
    set(LLAMA_BUILD_${part} OFF)
  endforeach()
  set(LLAMA_OPENSSL OFF)
  set(GGML_OPENMP OFF)
  set(GGML_CCACHE OFF)
  add_subdirectory("${SLLM_LLAMA_SOURCE}" llama.cpp EXCLUDE_FROM_ALL SYSTEM)
endif()

add_executable(sllm-llama-worker
  src/llama/engine.cpp
  src/llama/log.cpp
  src/llama/main.cpp
  src/llama/model.cpp
  src/llama/options.cpp
  src/llama/sampler.cpp
  src/llama/session.cpp)
target_link_libraries(sllm-llama-worker PRIVATE sllm_runtime llama sllm_flags)
