/* calibration.c: --calibrate: writes a program that measures the machine on which it runs, with the
   kernels, products and collectives of the programs that tpgen writes, and leaves device.json.

   Its text is that of templates/calibrate. The kernels of attention, and on GPUs those of groups of
   rows, are made of the same templates as those of programs, one for each size that is measured. */
#include "driver/driver.h"

#include <stdio.h>
#include <string.h>

static void add_text(const char *name, const char *contents)
{
  add_file(name, contents, strlen(contents), !strcmp(name, "run.sh"));
}

static void add_template(const char *name, const char *template)
{
  add_text(name, fill(embedded_template(template), "version", TPGEN_VERSION, NULL));
}

/* ------------------------------------------------------------------------------------ attention */

enum { HEADS = 4 }; /* of a sample, as in templates/calibrate/ */

/* A type of elements, and the variant of the kernels that it has. */
struct attention_type {
  const char *name, *element;
  int bytes;
  const char *variant;
};

struct attention_size {
  struct attention_type type;
  int depth, keys;
  bool is_back;
  const char *samples; /* their number, in C */
};

static char *attention_name(const struct attention_size *a)
{
  return text("attention%s_%s_%dx%d", a->is_back ? "_back" : "", a->type.name, a->keys, a->depth);
}

/* The kernel of a program, for samples of so many heads side by side. */
static char *attention_kernel(const struct attention_size *a)
{
  const bool is_bf16 = a->type.bytes == 2;
  const char *file =
      text("attention%s%s.%s", a->is_back ? "_back" : "",
           a->is_back || target->tensor_cores ? a->type.variant : "", target->source);
  const char *type = a->type.element, *depth = text("%d", a->depth), *keys = text("%d", a->keys);
  const char *row = text("%d", HEADS * a->depth), *sample = text("%d", HEADS * a->depth * a->keys);
  /* Of tiles: only kernels on tensor cores have them. */
  static const char *const tile[] = {"rows",       "strips",     "shared",       "kept",
                                     "some_keys",  "rows_2nd",   "strips_2nd",   "shared_2nd",
                                     "kept_2nd",   "parts",      "some_queries", "rows_3rd",
                                     "strips_3rd", "shared_3rd", "kept_3rd"};
  char *c =
      fill(embedded_template(file), "bf16", is_bf16 ? "1" : "0", "type_out", type, "type_q", type,
           "type_k", type, "type_v", type, "from_float_out", is_bf16 ? "float_to_bf16" : "", "name",
           attention_name(a), "b", a->samples, "g", text("%d", HEADS), "r", "1", "q", keys, "k",
           keys, "d", depth, "e", depth, "causal", "1", "s", "0.125f", "biased", "0", "documents",
           "0", "places", "0", "reach", "0", "ring", "0", "sinks", "0", "softcap", "0", "window",
           "0", "step_q_b", sample, "step_q_g", depth, "step_q_r", "0", "step_q_q", row, "step_k_b",
           sample, "step_k_g", depth, "step_k_k", row, "step_v_b", sample, "step_v_g", depth,
           "step_v_k", row, "step_out_b", sample, "step_out_g", depth, "step_out_r", "0",
           "step_out_q", row, "step_dq_b", sample, "step_dq_g", depth, "step_dq_r", "0",
           "step_dq_q", row, "step_dk_b", sample, "step_dk_g", depth, "step_dk_k", row, "step_dv_b",
           sample, "step_dv_g", depth, "step_dv_k", row, "step_dout_b", sample, "step_dout_g",
           depth, "step_dout_r", "0", "step_dout_q", row, NULL);
  for (size_t i = 0; i < sizeof tile / sizeof *tile && !strcmp(a->type.variant, "_mma"); i++)
    c = fill(c, tile[i],
             attention_tile_hole(a->is_back, tile[i], a->type.bytes, a->depth, a->depth), NULL);
  return c;
}

/* ------------------------------------------------------------------------------------- on CPUs */

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

/* A sample for each thread. */
static void add_attention_of_cpu(void)
{
  static const int depths[] = {16, 32, 64, 128}, lengths[] = {64, 256, 1024};
  static const struct attention_type types[] = {{"float32", "float", 4, ""},
                                                {"bfloat16", "bf16", 2, "_bf16"}};
  struct buffer kernels = {0}, calls = {0}, table = {0};
  for (int i = 0; i < 4 * 3 * 4; i++) {
    const struct attention_size a = {types[i / 2 % 2], depths[i / 12], lengths[i / 4 % 3], i % 2,
                                     "threads"};
    const char *name = attention_name(&a);
    put(&kernels, "%s\n", attention_kernel(&a));
    put(&calls, "%s",
        fill(a.is_back ? call_back : call_forward, "name", name, "type", a.type.element, NULL));
    put(&table, "    {\"%s\", %d, %d, %s, call_%s},\n", a.type.name, a.depth, a.keys,
        a.is_back ? "true" : "false", name);
  }
  add_text("calibrate_attention.c",
           fill(embedded_template("calibrate_attention.c"), "version", TPGEN_VERSION, "kernels",
                kernels.text, "calls", calls.text, "table", table.text, NULL));
}

static void add_files_of_cpu(void)
{
  static const char *const same[] = {"calibrate.h", "calibrate.c", "calibrate_elements.c",
                                     "calibrate_products.c", "calibrate_collectives.c"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) add_template(same[i], same[i]);
  add_attention_of_cpu();
}

/* -------------------------------------------------------------------------------------- on GPUs */

/* The launches of a kernel's file, one after the other: its lines "// launch: BLOCKS, THREADS[,
   BYTES]", each before the function that it is of. */
static char *launches_of(const char *file, const char *arguments)
{
  static const char launch[] = "// launch: ", start[] = "__global__ void ";
  struct buffer b = {0};
  for (const char *c = file; (c = strstr(c, launch));) {
    c += strlen(launch);
    const int length = (int)strcspn(c, "\n");
    const char *sizes = text("%.*s", length, c), *comma = strchr(sizes, ',');
    const char *name = strstr(c, start) + strlen(start);
    put(&b, "  LAUNCH%s(%.*s, %s, stream)\n  (%s);\n",
        comma && strchr(comma + 1, ',') ? "_SHARED" : "", (int)strcspn(name, "("), name, sizes,
        arguments);
  }
  return b.text;
}

static const struct attention_type types_of_gpu[] = {
    {"float32", "float", 4, ""}, {"tfloat32", "float", 4, "_mma"}, {"bfloat16", "bf16", 2, "_mma"}};

/* As many samples as give every multiprocessor many blocks; `a->samples` where the figures are of
   fewer. */
static void put_attention(struct attention_size a, struct buffer *kernels, struct buffer *calls,
                          struct buffer *table)
{
  enum { BLOCKS = 4096, TILE = 64 };
  const int samples = BLOCKS * TILE / (HEADS * a.keys);
  const char *name = attention_name(&a), *type = a.type.element;
  a.samples = text("%d", samples);
  put(kernels, "%s\n", attention_kernel(&a));
  a.samples = "a->samples";
  const char *arguments =
      a.is_back ? "dq, dk, dv, dout, q, k, v, out, lse, 0, 0" : "out, lse, q, k, v, 0";
  put(calls,
      "static void call_%s(const struct attention *a)\n"
      "{\n"
      "  const size_t rows = (size_t)a->samples * HEADS * (size_t)a->keys;\n"
      "  const size_t bytes = rows * (size_t)a->depth * sizeof(%s);\n",
      name, type);
  static const char *const forward[] = {"q", "k", "v"}, *const back[] = {"q", "k", "v", "out",
                                                                         "dout"};
  static const char *const made_back[] = {"dq", "dk", "dv"};
  for (int i = 0; i < (a.is_back ? 5 : 3); i++)
    put(calls, "  const %s *const %s = (const %s *)next_read(bytes);\n", type,
        a.is_back ? back[i] : forward[i], type);
  for (int i = 0; i < (a.is_back ? 3 : 1); i++)
    put(calls, "  %s *const %s = (%s *)next_written(bytes);\n", type,
        a.is_back ? made_back[i] : "out", type);
  put(calls, "  %sfloat *const lse = (%sfloat *)next_%s(rows * sizeof(float));\n%s}\n\n",
      a.is_back ? "const " : "", a.is_back ? "const " : "", a.is_back ? "read" : "written",
      launches_of(attention_kernel(&a), arguments));
  put(table, "    {\"%s\", %d, %d, %d, %s, call_%s},\n", a.type.name, a.depth, a.keys, samples,
      a.is_back ? "true" : "false", name);
}

/* A file for each type and size of heads: their kernels take long to compile. */
static void add_attention_of_gpu(void)
{
  static const int depths[] = {64, 128}, lengths[] = {128, 1024, 8192};
  struct buffer declared = {0}, measured = {0};
  for (int i = 0; i < 3 * 2; i++) {
    struct buffer kernels = {0}, calls = {0}, table = {0};
    struct attention_size a = {types_of_gpu[i / 2], depths[i % 2], 0, false, NULL};
    const char *list = text("attention_%s_%d", a.type.name, a.depth);
    for (int k = 0; k < 3 * 2; k++) {
      a.keys = lengths[k / 2];
      a.is_back = k % 2;
      put_attention(a, &kernels, &calls, &table);
    }
    add_text(text("calibrate_%s.cu", list),
             fill(embedded_template("calibrate_attention_kernels.cu"), "version", TPGEN_VERSION,
                  "kernels", kernels.text, "calls", calls.text, "list", list, "count", "6", "table",
                  table.text, NULL));
    put(&declared, "extern const struct attention %s[6];\n", list);
    put(&measured, "  measure_list(%s, 6);\n", list);
  }
  add_text("calibrate_attention.cuh",
           fill(embedded_template("calibrate_attention.cuh"), "version", TPGEN_VERSION, "heads",
                text("%d", HEADS), "lists", declared.text, NULL));
  add_text("calibrate_attention.cu", fill(embedded_template("calibrate_attention.cu"), "version",
                                          TPGEN_VERSION, "lists", measured.text, NULL));
}

enum { GROUPS = 8 };

/* The kernel of a program for groups of rows: `form` says which of the three products it is. */
static char *groups_kernel(int form, bool is_bf16, int size, const char *name)
{
  static const char *const files[] = {"grouped_linear", "grouped_linear_back_input",
                                      "grouped_linear_back_weight"};
  const char *type = is_bf16 ? "bf16" : "float", *side = text("%d", size);
  return fill(embedded_template(text("%s%s.cu", files[form], is_bf16 ? "_mma" : "")), "name", name,
              "type_out", type, "type_a", type, "type_b", type, "type_weight", type, "float_a", "",
              "float_b", "", "float_weight", "", "from_float_out", "", "n", side, "d", side, "e",
              text("%d", GROUPS), "room", text("%d", GROUPS * size), NULL);
}

static void add_products_of_gpu(void)
{
  static const int sizes[] = {128, 512, 2048};
  static const char *const forms[] = {"nt", "nn", "tn"};
  struct buffer kernels = {0}, calls = {0}, table = {0};
  for (int i = 0; i < 2 * 3 * 3; i++) {
    const bool is_bf16 = i / 9;
    const int form = i / 3 % 3, size = sizes[i % 3];
    const char *type = is_bf16 ? "bf16" : "float", *word = is_bf16 ? "bfloat16" : "float32";
    const char *name = text("groups_%s_%s_%d", word, forms[form], size);
    const char *kernel = groups_kernel(form, is_bf16, size, name);
    put(&kernels, "%s\n", kernel);
    put(&calls,
        "static void call_%s(const struct groups *g)\n"
        "{\n"
        "  const size_t bytes = (size_t)GROUPS * (size_t)g->size * (size_t)g->size * sizeof(%s);\n"
        "  const %s *const a = (const %s *)next_read(bytes), *const b = (const %s "
        "*)next_read(bytes);\n"
        "  %s *const out = (%s *)next_written(bytes);\n%s}\n\n",
        name, type, type, type, type, type, type, launches_of(kernel, "out, a, b, counts"));
    put(&table, "    {\"%s\", \"%s\", %d, call_%s},\n", word, forms[form], size, name);
  }
  add_text("calibrate_products.cu",
           fill(embedded_template("calibrate_products.cu"), "version", TPGEN_VERSION, "groups",
                text("%d", GROUPS), "sizes", "3", "kernels", kernels.text, "calls", calls.text,
                "table", table.text, NULL));
}

static void add_files_of_gpu(void)
{
  static const char *const same[] = {"calibrate.cuh", "calibrate.cu", "calibrate_kernels.cu",
                                     "calibrate_collectives.cu"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) add_template(same[i], same[i]);
  add_products_of_gpu();
  add_attention_of_gpu();
}

void write_calibration(void)
{
  if (!options.calibrate) return;
  add_template("calibrate_output.h", "calibrate_output.h");
  add_template("calibrate_output.c", "calibrate_output.c");
  if (target->thread_grids)
    add_files_of_gpu();
  else
    add_files_of_cpu();
  add_template("CMakeLists.txt", text("CMakeLists.calibrate_%s.txt", target->name));
  add_template("run.sh", text("calibrate_%s.sh", target->name));
  add_runtime();
  write_files("--calibrate", TPGEN_VERSION);
  end_printing();
}
