/* targets.c: the targets, one row for each. To add one: a row here, a row of its text in
   naming/target_syntax.c, its files in templates/ and runtime/. */
#include "util/util.h"

#include <string.h>

const struct target targets[TARGETS] = {
    [TARGET_CPU] =
        {
            .name = "cpu",
            .source = "c",
            .header = "h",
            .language = LANGUAGE_C,
            .library = LIBRARY_MPI,
            .most_counted = INT32_MAX,
            .posts_receives = true,
            .moves_segments = true,
            .widest_vector = 1,
        },
    [TARGET_CUDA] =
        {
            .name = "cuda",
            .source = "cu",
            .header = "cuh",
            .device = "H100",
            .language = LANGUAGE_CUDA,
            .library = LIBRARY_NCCL,
            .most_counted = INT64_MAX,
            .streams = true,
            .edge_groups = true,
            .steps_in_memory = true,
            .thread_grids = true,
            .tensor_cores = true,
            .widest_vector = 8,
            .most_shared = 163 << 10,
            .member_alignment = 64,
            .float8 = true,
            .epilogues = true,
            .product_table = true,
            .most_workspace = 32 << 20,
            .libraries = "CUDA and NCCL",
            .library_reserve = 1 << 30,
        },
};

const char *const language_name[LANGUAGES] = {"C", "CUDA"};

const struct target *target = &targets[TARGET_CPU];

bool set_target(const char *name)
{
  for (int i = 0; i < TARGETS; i++)
    if (!strcmp(targets[i].name, name)) {
      target = &targets[i];
      return true;
    }
  return false;
}
