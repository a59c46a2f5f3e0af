# Included by CMake right after llama.cpp's project() (CMAKE_PROJECT_llama_cpp_INCLUDE, see tools/setup.py).
# The source distribution of llama-cpp-python turns llama.cpp's `common` library on, which nothing in the
# wheel needs: without it the build takes half the time.
set(LLAMA_BUILD_COMMON OFF)
