"""The barrier of all threads of a Gluon program, under the same name for each version of Triton."""

from triton.experimental.gluon import language as gl

# Triton 3.7 renamed it
block_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
