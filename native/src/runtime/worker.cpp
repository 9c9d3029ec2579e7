#include "sllm/worker.hpp"
