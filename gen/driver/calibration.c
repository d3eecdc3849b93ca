/* calibration.c: --calibrate: writes a program that measures the machine on which it runs, with the
   kernels, products and collectives of the programs that tpgen writes, and leaves device.json. */
#include "driver/driver.h"

#include <stdio.h>
#include <string.h>

enum { HEADS = 4 }; /* of a sample, as in templates/calibrate/ */

static void add_template(const char *name, const char *template)
{
  const char *c = fill(embedded_template(template), "version", TPGEN_VERSION, NULL);
  add_file(name, c, strlen(c), !strcmp(name, "run.sh"));
}

/* ----------------------------------------------------------------- attention's kernels, on CPUs */

struct attention_size {
  int depth, keys;
  bool is_back, is_bf16;
};

static char *attention_name(const struct attention_size *a)
{
  return text("attention%s%s_%dx%d", a->is_back ? "_back" : "", a->is_bf16 ? "_bf16" : "", a->keys,
              a->depth);
}

/* The kernel of a program, for samples of so many heads side by side, a sample for each thread. */
static char *attention_kernel(const struct attention_size *a)
{
  const char *file = !a->is_back  ? "attention.c"
                     : a->is_bf16 ? "attention_back_bf16.c"
                                  : "attention_back.c";
  const char *type = a->is_bf16 ? "bf16" : "float";
  const char *depth = text("%d", a->depth), *keys = text("%d", a->keys);
  const char *row = text("%d", HEADS * a->depth), *sample = text("%d", HEADS * a->depth * a->keys);
  return fill(embedded_template(file), "bf16", a->is_bf16 ? "1" : "0", "type_out", type, "type_q",
              type, "type_k", type, "type_v", type, "from_float_out",
              a->is_bf16 ? "float_to_bf16" : "", "name", attention_name(a), "b", "threads", "g",
              text("%d", HEADS), "r", "1", "q", keys, "k", keys, "d", depth, "e", depth, "causal",
              "1", "s", "0.125f", "biased", "0", "documents", "0", "places", "0", "reach", "0",
              "ring", "0", "sinks", "0", "softcap", "0", "window", "0", "step_q_b", sample,
              "step_q_g", depth, "step_q_r", "0", "step_q_q", row, "step_k_b", sample, "step_k_g",
              depth, "step_k_k", row, "step_v_b", sample, "step_v_g", depth, "step_v_k", row,
              "step_out_b", sample, "step_out_g", depth, "step_out_r", "0", "step_out_q", row,
              "step_dq_b", sample, "step_dq_g", depth, "step_dq_r", "0", "step_dq_q", row,
              "step_dk_b", sample, "step_dk_g", depth, "step_dk_k", row, "step_dv_b", sample,
              "step_dv_g", depth, "step_dv_k", row, "step_dout_b", sample, "step_dout_g", depth,
              "step_dout_r", "0", "step_dout_q", row, NULL);
}

static const char call_forward[] =
    "static void call_$name$(const struct attention *a)\n"
    "{\n"
    "  const size_t bytes = (size_t)threads * HEADS * (size_t)(a->keys * a->depth) * "
    "sizeof($type$);\n"
    "  float *const lse = next_place((size_t)(threads * HEADS * a->keys) * sizeof(float));\n"
    "  $name$(next_place(bytes), lse, next_place(bytes), next_place(bytes),\n"
    "      next_place(bytes), 0);\n"
    "}\n\n";
static const char call_back[] =
    "static void call_$name$(const struct attention *a)\n"
    "{\n"
    "  const size_t bytes = (size_t)threads * HEADS * (size_t)(a->keys * a->depth) * "
    "sizeof($type$);\n"
    "  float *const lse = next_place((size_t)(threads * HEADS * a->keys) * sizeof(float));\n"
    "  $name$(next_place(bytes), next_place(bytes), next_place(bytes),\n"
    "      next_place(bytes), next_place(bytes), next_place(bytes), next_place(bytes),\n"
    "      next_place(bytes), lse, 0, 0);\n"
    "}\n\n";

static void add_attention(void)
{
  static const int depths[] = {16, 32, 64, 128}, lengths[] = {64, 256, 1024};
  struct buffer kernels = {0}, calls = {0}, table = {0};
  for (int i = 0; i < 4 * 3 * 4; i++) {
    struct attention_size a = {depths[i / 12], lengths[i / 4 % 3], i % 2, i / 2 % 2};
    const char *name = attention_name(&a);
    put(&kernels, "%s\n", attention_kernel(&a));
    put(&calls, "%s",
        fill(a.is_back ? call_back : call_forward, "name", name, "type",
             a.is_bf16 ? "bf16" : "float", NULL));
    put(&table, "    {\"%s\", %d, %d, %s, call_%s},\n", a.is_bf16 ? "bfloat16" : "float32", a.depth,
        a.keys, a.is_back ? "true" : "false", name);
  }
  const char *c = fill(embedded_template("calibrate_attention.c"), "version", TPGEN_VERSION,
                       "kernels", kernels.text, "calls", calls.text, "table", table.text, NULL);
  add_file("calibrate_attention.c", c, strlen(c), false);
}

void write_calibration(void)
{
  static const char *const same[] = {"calibrate.h", "calibrate.c", "calibrate_elements.c",
                                     "calibrate_products.c", "calibrate_collectives.c"};
  if (!options.calibrate) return;
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) add_template(same[i], same[i]);
  add_attention();
  add_template("CMakeLists.txt", text("CMakeLists.calibrate_%s.txt", target->name));
  add_template("run.sh", text("calibrate_%s.sh", target->name));
  add_runtime();
  write_files("--calibrate", TPGEN_VERSION);
  end_printing();
}
