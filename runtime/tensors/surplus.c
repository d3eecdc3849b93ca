// SPDX-License-Identifier: MIT
// What a file of weights has beside the program's parameters, and what it may lack.
//
// The names are those that transformers leaves out by itself (`_keys_to_ignore_on_load_unexpected`
// of its models: masks of GPT-2, GPT-J, GPT-Neo and GPT-NeoX, position ids of BERT and CLIP, the
// layers for several tokens at once of DeepSeek-V3, GLM-4.5 and Qwen3-Next), and buffers that its
// earlier versions saved (`inv_freq` of Llama 2).
#include "tensors/surplus.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "base/names.h"

static bool ends_with_any(const char *name, const char *const *ends)
{
  for (; *ends; ends++)
    if (ends_with(name, *ends)) return true;
  return false;
}

static bool fits_any(const char *const *patterns, const char *name)
{
  for (; patterns && *patterns; patterns++)
    if (!fnmatch(*patterns, name, 0)) return true;
  return false;
}

// ---- buffers -----------------------------------------------------------------------------------

// [1, 1, n, n]: what a bias of a product never is.
static bool is_mask(const struct entry *e)
{
  return e->ndim == 4 && e->shape[0] == 1 && e->shape[1] == 1 && e->shape[2] == e->shape[3];
}

static bool is_one_number(const struct entry *e)
{
  for (size_t d = 0; d < e->ndim; d++)
    if (e->shape[d] != 1) return false;
  return true;
}

bool is_count_of_batches(const char *name)
{
  return ends_with(name, "num_batches_tracked");
}

// A model computes the same without it.
static bool is_buffer(const struct entry *e)
{
  static const char *const computed[] = {".inv_freq", ".cos_cached", ".sin_cached", "rope.freqs",
                                         NULL};
  const bool is_integer = !strcmp(e->dtype, "I64") || !strcmp(e->dtype, "I32");
  if (is_count_of_batches(e->name)) return true;
  if (ends_with(e->name, ".masked_bias")) return is_one_number(e);
  if (ends_with(e->name, ".bias")) return is_mask(e);
  if (ends_with(e->name, "position_ids")) return is_integer;
  return ends_with_any(e->name, computed);
}

// ---- layers for several tokens at once ---------------------------------------------------------

// "mtp.fc.weight"; or of a layer "model.layers.61" that has "model.layers.61.eh_proj.weight".
static bool is_of_prediction_layer(const struct archive *archive, const char *name)
{
  static const char list[] = "layers.";
  if (!strncmp(name, "mtp.", 4) || !strncmp(name, "model.mtp.", 10)) return true;
  const char *at = strstr(name, list);
  if (!at) return false;
  at += strlen(list);
  const size_t n = (size_t)(at - name) + strspn(at, "0123456789");
  char joins[4096];
  if (name[n] != '.' || n + sizeof ".eh_proj.weight" > sizeof joins) return false;
  memcpy(joins, name, n);
  memcpy(joins + n, ".eh_proj.weight", sizeof ".eh_proj.weight");
  return archive_find(archive, joins) != NULL;
}

// ---- heads that are embeddings -----------------------------------------------------------------

static const char *const heads[] = {"lm_head.weight", "embed_out.weight", NULL};
static const char *const embeddings[] = {"embed_tokens.weight",   "wte.weight",
                                         "embed_in.weight",       "word_embeddings.weight",
                                         "tok_embeddings.weight", NULL};

static bool same_type(const struct entry *a, const struct entry *b)
{
  return !strcmp(a->dtype, b->dtype) && a->ndim == b->ndim &&
         !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape);
}

// Whether the two have the same bytes. False, and why, if they cannot be read.
static bool are_copies(const struct kept *a, const struct kept *b, bool *are, struct failure *why)
{
  enum { AT_ONCE = 1 << 20 };
  *are = same_type(a->entry, b->entry) && !a->entry->strides == !b->entry->strides && !a->packed &&
         !b->packed;
  if (!*are) return true;
  const size_t ndim = a->entry->ndim;
  long *zeros = calloc(ndim + 1, sizeof *zeros);
  char *bytes = malloc(2 * (size_t)AT_ONCE);
  bool ok = (zeros && bytes) || failed(why, "%s: out of memory", a->file->path);
  const struct slice whole = {ndim, a->entry->shape, a->entry->shape, zeros};
  const size_t all = ok ? slice_elements(&whole) : 0;
  const size_t size = all ? (size_t)((a->entry->end - a->entry->begin) / all) : 1;
  for (size_t from = 0, n; ok && *are && from < all; from += n) {
    n = AT_ONCE / size < all - from ? AT_ONCE / size : all - from;
    ok = safetensors_read(a->file, a->entry, &whole, from, n, bytes, why) &&
         safetensors_read(b->file, b->entry, &whole, from, n, bytes + AT_ONCE, why);
    *are = ok && !memcmp(bytes, bytes + AT_ONCE, n * size);
  }
  free(zeros);
  free(bytes);
  return ok;
}

// The embedding of the program that is in the file; NULL: none.
static const struct kept *embedding_in(const struct archive *archive, const struct members *members)
{
  for (size_t i = 0; i < archive->count; i++) {
    const struct entry *e = archive->all[i].entry;
    if (ends_with_any(e->name, embeddings) && table_find(members, e->name)) return &archive->all[i];
  }
  return NULL;
}

const struct kept *surplus_tied(const struct archive *archive, const struct member *m,
                                const struct members *members)
{
  const char *name = m->alias ? m->alias : m->name;
  if (!ends_with_any(name, embeddings) || table_stacked(m)) return NULL;
  for (size_t i = 0; i < archive->count; i++) {
    const char *head = archive->all[i].entry->name;
    if (ends_with_any(head, heads) && !table_find(members, head)) return &archive->all[i];
  }
  return NULL;
}

// ---- quantized files ---------------------------------------------------------------------------

// The way of storing weights that has tensors with such a name; NULL: none.
static const char *quantized_by(const char *name)
{
  static const struct {
    const char *end, *by;
  } parts[] = {
      {".g_idx", "GPTQ"},
      {".qzeros", "AWQ or GPTQ"},
      {".qweight", "AWQ or GPTQ"},
      {".absmax", "bitsandbytes in 4 bits"},
      {".quant_map", "bitsandbytes in 4 bits"},
      {".nested_absmax", "bitsandbytes in 4 bits"},
      {".SCB", "bitsandbytes in 8 bits"},
      {".weight_scale_inv", "float8 in blocks with scales"},
      {".weight_scale", "compressed-tensors: float8 or int8 with scales"},
      {".input_scale", "compressed-tensors: float8 or int8 with scales"},
      {".weight_packed", "compressed-tensors in 4 bits"},
      {"_proj_blocks", "MXFP4"},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (ends_with(name, parts[i].end)) return parts[i].by;
  if (strstr(name, "quant_state.bitsandbytes__")) return "bitsandbytes in 4 bits";
  return NULL;
}

static bool refuse_quantized(const struct archive *archive, struct failure *why)
{
  for (size_t i = 0; i < archive->count; i++) {
    const char *name = archive->all[i].entry->name, *by = quantized_by(name);
    if (!by) continue;
    failed(why,
           "%s: its weights are quantized (%s), as %s shows; a program takes float32, bfloat16, "
           "float16, float8 with a scale for each block, and MXFP4: take the file that was not "
           "quantized, or save the model again after "
           "model.dequantize()",
           archive->path, by, name);
    return true;
  }
  return false;
}

// ---- all together ------------------------------------------------------------------------------

bool surplus_is_base_layer(const char *name)
{
  return strstr(name, ".base_layer.") != NULL;
}

bool surplus_refuse_base_layer(const struct archive *archive, const char *name, struct failure *why)
{
  return failed(why,
                "%s: it holds %s, the base layer of a PEFT model: save the base by "
                "model.unload().save_pretrained, for --weights, and the adapters by "
                "model.save_pretrained(folder, save_embedding_layers=False), for --adapter",
                archive->path, name);
}

bool surplus_takes(const struct archive *archive, const struct kept *surplus,
                   const struct members *members, const struct surplus_patterns *patterns,
                   size_t *noted, struct failure *why)
{
  const char *name = surplus->entry->name;
  if (fits_any(patterns->ignore, name) || is_buffer(surplus->entry)) return true;
  if (is_of_prediction_layer(archive, name)) {
    ++*noted;
    return true;
  }
  if (surplus_is_base_layer(name)) return surplus_refuse_base_layer(archive, name, why);
  const struct kept *embedding = ends_with_any(name, heads) ? embedding_in(archive, members) : NULL;
  if (embedding) {
    bool are;
    if (!are_copies(surplus, embedding, &are, why)) return false;
    if (are) return true;
    return failed(why,
                  "%s: %s is another tensor than %s, and the program has one for both: the model's "
                  "config.json says tie_word_embeddings, and the file does not",
                  archive->path, name, embedding->entry->name);
  }
  if (ends_with_any(name, heads)) { // in the place of the embedding, which surplus_tied finds
    for (size_t i = 0; i < members->count; i++)
      if (surplus_tied(archive, &members->all[i], members) == surplus) return true;
  }
  if (refuse_quantized(archive, why)) return false;
  return failed(why,
                "%s: it holds %s, which the program does not know; --ignore '%s' leaves it out",
                archive->path, name, name);
}

bool surplus_may_lack(const struct member *m, const struct surplus_patterns *patterns)
{
  return fits_any(patterns->allow_missing, m->name) ||
         (m->alias && fits_any(patterns->allow_missing, m->alias));
}
