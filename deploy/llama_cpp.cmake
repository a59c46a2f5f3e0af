# Included by CMake right after llama.cpp's project() (CMAKE_PROJECT_llama_cpp_INCLUDE, see tools/wheel_cache.py).

# The source distribution of llama-cpp-python turns llama.cpp's `common` library on, which nothing in the
# wheel needs: without it the build takes half the time.
set(LLAMA_BUILD_COMMON OFF)

# No AMX kernels, also where the processor has them. GCC 12 drops the stores into their tile configuration (its
# intrinsic names 8 of the 64 bytes as read), so that the first prompt of a quantised model is a segmentation fault.
# And they are chosen by the number of rows, while continuing a log bit for bit was measured on kernels that are not.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-U__AMX_INT8__>")
