/* target_syntax.c: the text forms of each target's programs, one row for each target. Holes have
   names. */
#include "naming/naming.h"

static const struct target_syntax rows[TARGETS] = {
    [TARGET_CPU] =
        {
            .kernel_mark = "",
            .no_alias = "restrict ",
            .kernel_bounds = "",
            .kernel_call = "$name$($arguments$);",
            .zero_bytes = "memset($at$, 0, $bytes$);",
            .zero_member = "  memset(&$member$, 0, sizeof $member$);\n",
            .fill_value = "fill($at$, $n$, sizeof least, &least);",
            .updated = "$name$[i]",
            .clear_squares = "*$squares$ = 0;",
            .add_squares = "*$squares$ += $kernel$($gradients$, $n$)$divided$;",
            .squares_head = "double $name$(const float *g, long n)",
            .add_largest = "*$squares$ = $kernel$($gradients$, $n$, *$squares$);",
            .largest_head = "double $name$(const float *g, long n, double most)",
            .norm = "$number$ = (float)sqrt(*$squares$);",
            .largest_norm = "$number$ = (float)*$squares$;",
            .step_parameter = "int t",
            .step_parameters = "int t",
            .step_number = "t",
            .batch_number = "i + 1",
            .batches = "for (int i = $n$ * (t - 1); i < $n$ * t; i++) {",
            .is_last_batch = "i == $n$ * t - 1",
            .open_function = "",
            .memory_is = "",
            .declares = "",
            .own_static = "static _Thread_local",
            .library_data = "in the process's memory, to be read and written there",
        },
    [TARGET_CUDA] =
        {
            .kernel_mark = "__global__ ",
            .no_alias = "__restrict__ ",
            .kernel_bounds = "__global__ __launch_bounds__($threads$)\n",
            .kernel_call = "LAUNCH($name$, $blocks$, $threads$, stream)($arguments$);",
            .zero_bytes = "CHECK_CUDA(cudaMemsetAsync($at$, 0, $bytes$, stream));",
            .zero_member =
                "  CHECK_CUDA(cudaMemsetAsync(&$member$, 0, sizeof $member$, stream));\n",
            .copy_member = "CHECK_CUDA(cudaMemcpyAsync(&$to$, &$from$, sizeof $batch$,\n"
                           "                               cudaMemcpyDeviceToDevice, stream));\n",
            .fill_value = "fill($at$, $n$, least);",
            .updated = "$name$_v[e]",
            .clear_squares = "",
            .add_squares = "LAUNCH(add_to_$kernel$, $blocks$, $threads$, stream)($gradients$, $n$, "
                           "$weight$);",
            .sum_squares = "LAUNCH($kernel$, 1, 1024, stream)($squares$);",
            .squares_head = "__global__ void add_to_$name$(const float *__restrict__ g, long n, "
                            "double weight)\n"
                            "__global__ void $name$(double *squares)",
            .add_largest =
                "LAUNCH(add_to_$kernel$, $blocks$, $threads$, stream)($gradients$, $n$);",
            .largest_head = "__global__ void add_to_$name$(const float *__restrict__ g, long n)\n"
                            "__global__ void $name$(double *largest)",
            .largest_norm = "LAUNCH(largest_norm, 1, 1, stream)($norm$, $squares$);",
            .largest_norm_kernel = "largest_norm",
            .largest_norm_head = "__global__ void largest_norm(float *norm, const double *largest)",
            .norm = "LAUNCH(square_root, 1, 1, stream)($norm$, $squares$);",
            .norm_kernel = "square_root",
            .norm_head = "__global__ void square_root(float *norm, const double *squares)",
            .step_parameter = "const int *t",
            .step_parameters = "void",
            .step_number = "&m->now.step",
            .batch_number = "&m->now.batch[i]",
            .batches = "for (int i = 0; i < $n$; i++) {",
            .is_last_batch = "i == $last$",
            .open_function = "  const range shown(\"$name$\");\n",
            .declares =
                "extern const struct $struct$ $name$; // without it, a const of C++ is static\n",
            .names_zeros = true,
            .own_static = "static",
            .library_data = "on the device: copy with cudaMemcpy between calls",
            .memory_is = " // on the device: never read here, only pointed into",
            .stream_type = "cudaStream_t",
            .event_type = "cudaEvent_t",
        },
};

const struct target_syntax *target_syntax(void)
{
  return &rows[target - targets];
}
