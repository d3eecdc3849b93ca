/* fuse_experts FROM TO: copies a safetensors file of Mixtral, Qwen3-MoE or DeepSeek-V3, and makes
   one tensor of each layer's experts, as Hugging Face's transformers has them in memory:
   experts.gate_up_proj [experts, gate's rows and then up's, columns], experts.down_proj [experts,
   rows, columns]. */
#include "tensor_file.h"

#include <stdbool.h>

enum { MOST = 1 << 16 };

/* One of the old tensors, and what becomes of it: the bytes of all experts' lie one after the
   other, of each expert those of its gate before those of its up. */
struct piece {
  char to[512]; /* the new tensor */
  long expert;  /* or -1: it is copied */
  int part;     /* 0: gate, 1: up, 2: down */
  json_t *shape;
  struct elements from;
};

static struct piece pieces[MOST];
static size_t n;

/* "model.layers.0.block_sparse_moe.": transformers calls every such module mlp. */
static void put_prefix(char *to, const char *name, size_t length)
{
  static const char old[] = "block_sparse_moe.";
  const char *at = strstr(name, old);
  const bool renamed = at && at < name + length;
  size_t before = renamed ? (size_t)(at - name) : length;
  sprintf(to, "%.*s%s", (int)before, name, renamed ? "mlp." : "");
  if (renamed) strncat(to, at + strlen(old), length - before - strlen(old));
}

static void add(const struct file *f, const char *name, json_t *tensor)
{
  static const char *const part[][2] = {{"gate_proj.weight", "w1.weight"},
                                        {"up_proj.weight", "w3.weight"},
                                        {"down_proj.weight", "w2.weight"}};
  struct piece *p = &pieces[n++];
  const char *experts = strstr(name, ".experts.");
  char *rest = NULL;
  if (n == MOST || strlen(name) > 256) die(f->path, "too many tensors, or too long a name");
  *p = (struct piece){.expert = -1, .part = -1, .shape = json_object_get(tensor, "shape")};
  p->from = elements_of(f, tensor);
  if (!experts) {
    put_prefix(p->to, name, strlen(name));
    return;
  }
  p->expert = strtol(experts + strlen(".experts."), &rest, 10);
  for (int i = 0; i < 3; i++)
    if (!strcmp(rest + 1, part[i][0]) || !strcmp(rest + 1, part[i][1])) p->part = i;
  if (p->part < 0) die(f->path, "an expert has an unknown tensor");
  put_prefix(p->to, name, (size_t)(experts + 1 - name));
  strcat(p->to, p->part == 2 ? "experts.down_proj" : "experts.gate_up_proj");
}

/* In the order of the new file. */
static int by_place(const void *a, const void *b)
{
  const struct piece *x = a, *y = b;
  int order = strcmp(x->to, y->to);
  if (order) return order;
  if (x->expert != y->expert) return x->expert < y->expert ? -1 : 1;
  return x->part - y->part;
}

/* The pieces from the i-th on that are one tensor. */
static size_t count_from(size_t i)
{
  size_t k = i;
  while (k < n && !strcmp(pieces[k].to, pieces[i].to)) k++;
  return k - i;
}

static json_t *new_header(void)
{
  json_t *header = json_object();
  size_t at = 0;
  for (size_t i = 0, k; i < n; i += k) {
    k = count_from(i);
    const struct piece *p = &pieces[i];
    size_t bytes = 0;
    json_t *shape = json_deep_copy(p->shape);
    for (size_t j = i; j < i + k; j++) bytes += pieces[j].from.n * size_of(pieces[j].from.dtype);
    if (p->expert >= 0) {
      const int parts = p->part == 2 ? 1 : 2;
      json_array_set_new(shape, 0,
                         json_integer(parts * json_integer_value(json_array_get(shape, 0))));
      json_array_insert_new(shape, 0, json_integer((json_int_t)k / parts));
    }
    json_object_set_new(header, p->to,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", p->from.dtype, "shape", shape,
                                  "data_offsets", (json_int_t)at, (json_int_t)(at + bytes)));
    at += bytes;
  }
  return header;
}

int main(int argc, char **argv)
{
  if (argc != 3) {
    fprintf(stderr, "usage: fuse_experts FROM TO\n");
    return 2;
  }
  const struct file f = load(argv[1]);
  const char *name;
  json_t *tensor;
  json_object_foreach(f.header, name, tensor) add(&f, name, tensor);
  qsort(pieces, n, sizeof *pieces, by_place);
  char *text = json_dumps(new_header(), JSON_COMPACT);
  FILE *to = fopen(argv[2], "wb");
  if (!to || !text) die(argv[2], "cannot be made");
  const size_t length = strlen(text);
  for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), to);
  fwrite(text, 1, length, to);
  for (size_t i = 0; i < n; i++)
    fwrite(pieces[i].from.bytes, size_of(pieces[i].from.dtype), pieces[i].from.n, to);
  if (ferror(to) || fclose(to)) die(argv[2], "cannot be written");
  return 0;
}
