/* deepen_archive FROM TO LAYERS BYTES: an archive of torch.export as FROM, of a model whose layers
   are called layers.0 and layers.1, with more layers, each as layers.1; and whose weights lie in
   one entry of BYTES bytes that are nowhere on the disk: the file is sparse, and a ZIP64. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unzip.h>
#include <zlib.h>

enum { MOST_NAMES = 4096, NAME = 512 };

static unzFile archive;
static char root[NAME];

static void stop(const char *what)
{
  fprintf(stderr, "deepen_archive: %s\n", what);
  exit(1);
}

static json_t *read_json(const char *name)
{
  char path[2 * NAME];
  unz_file_info64 about;
  snprintf(path, sizeof path, "%s%s", root, name);
  if (unzLocateFile(archive, path, 1) != UNZ_OK ||
      unzGetCurrentFileInfo64(archive, &about, NULL, 0, NULL, 0, NULL, 0) != UNZ_OK ||
      unzOpenCurrentFile(archive) != UNZ_OK)
    stop(path);
  char *text = malloc(about.uncompressed_size);
  int n = text ? unzReadCurrentFile(archive, text, (unsigned)about.uncompressed_size) : -1;
  unzCloseCurrentFile(archive);
  json_t *json = n < 0 ? NULL : json_loadb(text, (size_t)n, 0, NULL);
  free(text);
  if (!json) stop(path);
  return json;
}

/* --------------------------------------------------------------------------------------- layers */

/* Names of values that a layer makes, or takes as parameters. */
static const char *own[MOST_NAMES];
static int nown;
static const char *entry, *result; /* what layers.1 takes from layers.0, and gives */

static bool is_own(const char *name)
{
  for (int i = 0; i < nown; i++)
    if (!strcmp(own[i], name)) return true;
  return false;
}

/* The text with `from` replaced, wherever it stands with no digit after it. */
static char *replaced(const char *text, const char *from, const char *to)
{
  char *new = calloc(1, 4 * strlen(text) + 64), *end = new;
  for (const char *at = text; *at;) {
    const size_t n = strlen(from);
    const bool here = !strncmp(at, from, n) && !(at[n] >= '0' && at[n] <= '9');
    end += sprintf(end, "%.*s", here ? (int)strlen(to) : 1, here ? to : at);
    at += here ? n : 1;
  }
  return new;
}

static json_t *renamed_text(const char *text, int layer)
{
  char name[NAME], to[32];
  if (!strcmp(text, entry)) {
    if (layer == 2) return json_string(result);
    snprintf(name, sizeof name, "%s.%d", result, layer - 1);
    return json_string(name);
  }
  if (is_own(text) && !strstr(text, "layers_1")) {
    snprintf(name, sizeof name, "%s.%d", text, layer);
    return json_string(name);
  }
  snprintf(to, sizeof to, "layers.%d", layer);
  char *path = replaced(text, "layers.1", to);
  snprintf(to, sizeof to, "layers_%d_", layer);
  char *both = replaced(path, "layers_1_", to);
  json_t *new = json_string(both);
  free(path);
  free(both);
  return new;
}

/* A copy of what belongs to layers.1, for another layer. */
static json_t *copied(const json_t *of, int layer)
{
  const char *key;
  json_t *value, *new = NULL;
  size_t i;
  if (json_is_string(of)) return renamed_text(json_string_value(of), layer);
  if (json_is_array(of)) {
    new = json_array();
    json_array_foreach((json_t *)(uintptr_t)of, i, value)
        json_array_append_new(new, copied(value, layer));
    return new;
  }
  if (!json_is_object(of)) return json_deep_copy(of);
  new = json_object();
  json_object_foreach((json_t *)(uintptr_t)of, key, value)
      json_object_set_new(new, key, copied(value, layer));
  return new;
}

static bool is_of_layer(const json_t *node, const char *layer)
{
  const char *stack =
      json_string_value(json_object_get(json_object_get(node, "metadata"), "nn_module_stack"));
  return stack && strstr(stack, layer);
}

static const char *first_output(const json_t *node)
{
  const json_t *out = json_array_get(json_object_get(node, "outputs"), 0);
  return json_string_value(json_object_get(json_object_get(out, "as_tensor"), "name"));
}

static void note_names(const json_t *nodes)
{
  size_t i, k;
  json_t *node, *out;
  const char *last = NULL;
  json_array_foreach((json_t *)(uintptr_t)nodes, i, node)
  {
    if (is_of_layer(node, "layers.0,") && first_output(node)) entry = first_output(node);
    if (!is_of_layer(node, "layers.1,")) continue;
    last = first_output(node) ? first_output(node) : last;
    json_array_foreach(json_object_get(node, "outputs"), k, out)
    {
      const char *name =
          json_string_value(json_object_get(json_object_get(out, "as_tensor"), "name"));
      if (name && nown < MOST_NAMES) own[nown++] = name;
    }
  }
  result = last;
  if (!entry || !result) stop("it has no layers.0 and layers.1");
}

/* After those of layers.1, the same of the layers 2 .. layers - 1. What reads the last layer's
   result then reads that of the last of them. */
static json_t *deepened_list(const json_t *list, int layers, bool (*is_layers)(const json_t *))
{
  json_t *new = json_array(), *item;
  size_t i, n = json_array_size(list);
  json_array_foreach((json_t *)(uintptr_t)list, i, item)
  {
    json_array_append(new, item);
    if (!is_layers(item) || (i + 1 < n && is_layers(json_array_get(list, i + 1)))) continue;
    for (int layer = 2; layer < layers; layer++)
      for (size_t k = 0; k < n; k++)
        if (is_layers(json_array_get(list, k)))
          json_array_append_new(new, copied(json_array_get(list, k), layer));
  }
  return new;
}

static bool is_node(const json_t *node)
{
  return is_of_layer(node, "layers.1,");
}

static bool is_parameter(const json_t *spec)
{
  char *text = json_dumps(spec, JSON_ENCODE_ANY);
  const bool is = text && (strstr(text, "layers_1_") || strstr(text, "layers.1."));
  free(text);
  return is;
}

/* Behind the layers the last of them gives what layers.1 gave. */
static void read_last(json_t *nodes, int layers)
{
  char name[NAME];
  size_t i;
  json_t *node;
  bool behind = false;
  snprintf(name, sizeof name, "%s.%d", result, layers - 1);
  char *last = strdup(name);
  json_array_foreach(nodes, i, node)
  {
    const char *out = first_output(node);
    if (behind) {
      size_t k;
      json_t *input;
      json_array_foreach(json_object_get(node, "inputs"), k, input)
      {
        json_t *tensor = json_object_get(json_object_get(input, "arg"), "as_tensor");
        const char *read = json_string_value(json_object_get(tensor, "name"));
        if (read && !strcmp(read, result)) json_object_set_new(tensor, "name", json_string(last));
      }
    }
    behind = behind || (out && !strcmp(out, last));
  }
  free(last);
}

static void deepen_values(json_t *values, int layers)
{
  json_t *new = json_object(), *value;
  const char *key;
  json_object_foreach(values, key, value)
  {
    if (!is_own(key) && !strstr(key, "layers_1_")) continue;
    for (int layer = 2; layer < layers; layer++) {
      json_t *name = renamed_text(key, layer);
      json_object_set(new, json_string_value(name), value);
      json_decref(name);
    }
  }
  json_object_update(values, new);
  json_decref(new);
}

static void deepen_graph(json_t *model, int layers)
{
  json_t *module = json_object_get(model, "graph_module"),
         *graph = json_object_get(module, "graph");
  json_t *signature = json_object_get(module, "signature");
  note_names(json_object_get(graph, "nodes"));
  deepen_values(json_object_get(graph, "tensor_values"), layers);
  json_t *nodes = deepened_list(json_object_get(graph, "nodes"), layers, is_node);
  json_t *all = json_deep_copy(nodes);
  json_decref(nodes);
  read_last(all, layers);
  json_object_set_new(graph, "nodes", all);
  json_object_set_new(graph, "inputs",
                      deepened_list(json_object_get(graph, "inputs"), layers, is_parameter));
  json_object_set_new(
      signature, "input_specs",
      deepened_list(json_object_get(signature, "input_specs"), layers, is_parameter));
}

/* All weights lie in the huge entry, one behind the other, and far apart. */
static void deepen_weights(json_t *weights, int layers, uint64_t bytes)
{
  json_t *config = json_object_get(weights, "config"), *new = json_object(), *about;
  const char *key;
  json_object_foreach(config, key, about)
  {
    json_object_set_new(new, key, json_deep_copy(about));
    for (int layer = 2; layer < layers && strstr(key, "layers.1."); layer++) {
      char to[32];
      snprintf(to, sizeof to, "layers.%d", layer);
      char *name = replaced(key, "layers.1", to);
      json_object_set_new(new, name, json_deep_copy(about));
      free(name);
    }
  }
  const uint64_t apart = bytes / sizeof(float) / (json_object_size(new) + 1);
  uint64_t at = 0;
  json_object_foreach(new, key, about)
  {
    json_object_set_new(about, "path_name", json_string("weight_0"));
    json_object_set_new(json_object_get(about, "tensor_meta"), "storage_offset",
                        json_pack("{s:I}", "as_int", (json_int_t)at));
    at += apart;
  }
  json_object_set_new(weights, "config", new);
}

/* ----------------------------------------------------------------------------------------- ZIP */

enum { LOCAL = 30, LONG_FIELD = 20 };

static FILE *out;
static struct member {
  const char *name;
  uint64_t offset, size;
  uint32_t crc;
} members[16];
static int nmembers;

static void put_number(uint64_t n, int bytes)
{
  for (int i = 0; i < bytes; i++) fputc((int)(n >> 8 * i & 255), out);
}

static void put_header(const struct member *m, bool central)
{
  char path[2 * NAME];
  snprintf(path, sizeof path, "%s%s", root, m->name);
  put_number(central ? 0x02014b50 : 0x04034b50, 4);
  if (central) put_number(45, 2);
  put_number(45, 2);
  put_number(0, 8);
  put_number(m->crc, 4);
  put_number(UINT32_MAX, 4);
  put_number(UINT32_MAX, 4);
  put_number(strlen(path), 2);
  put_number(central ? LONG_FIELD + 8 : LONG_FIELD, 2);
  if (central) {
    put_number(0, 10);
    put_number(UINT32_MAX, 4);
  }
  fputs(path, out);
  put_number(1, 2);
  put_number(central ? 24 : 16, 2);
  put_number(m->size, 8);
  put_number(m->size, 8);
  if (central) put_number(m->offset, 8);
}

/* text NULL: a hole of this size. */
static void put_member(const char *name, const char *text, uint64_t size)
{
  struct member *m = &members[nmembers++];
  *m = (struct member){name, (uint64_t)ftello(out), size,
                       text ? (uint32_t)crc32(0, (const Bytef *)text, (uInt)size) : 0};
  put_header(m, false);
  if (text)
    fwrite(text, 1, size, out);
  else if (fseeko(out, (off_t)size, SEEK_CUR))
    stop("no hole");
}

static void put_json(const char *name, const json_t *json)
{
  char *text = json_dumps(json, 0);
  put_member(name, text, strlen(text));
}

static void put_end(void)
{
  const uint64_t directory = (uint64_t)ftello(out);
  for (int i = 0; i < nmembers; i++) put_header(&members[i], true);
  const uint64_t end = (uint64_t)ftello(out);
  put_number(0x06064b50, 4);
  put_number(44, 8);
  put_number(45, 2);
  put_number(45, 2);
  put_number(0, 8);
  put_number((uint64_t)nmembers, 8);
  put_number((uint64_t)nmembers, 8);
  put_number(end - directory, 8);
  put_number(directory, 8);
  put_number(0x07064b50, 4);
  put_number(0, 4);
  put_number(end, 8);
  put_number(1, 4);
  put_number(0x06054b50, 4);
  put_number(0, 4);
  put_number(UINT16_MAX, 2);
  put_number(UINT16_MAX, 2);
  put_number(UINT32_MAX, 4);
  put_number(UINT32_MAX, 4);
  put_number(0, 2);
}

int main(int argc, char **argv)
{
  if (argc != 5) stop("FROM TO LAYERS BYTES");
  const int layers = atoi(argv[3]);
  const uint64_t bytes = strtoull(argv[4], NULL, 10);
  archive = unzOpen64(argv[1]);
  if (!archive || unzGoToFirstFile(archive) != UNZ_OK ||
      unzGetCurrentFileInfo64(archive, NULL, root, NAME - 1, NULL, 0, NULL, 0) != UNZ_OK ||
      !strchr(root, '/'))
    stop("no archive");
  strchr(root, '/')[1] = 0;
  json_t *model = read_json("models/model.json"),
         *weights = read_json("data/weights/model_weights_config.json");
  json_t *constants = read_json("data/constants/model_constants_config.json");
  deepen_graph(model, layers);
  deepen_weights(weights, layers, bytes);
  out = fopen(argv[2], "wb");
  if (!out) stop(argv[2]);
  put_member("data/weights/weight_0", NULL, bytes);
  put_json("data/weights/model_weights_config.json", weights);
  put_json("data/constants/model_constants_config.json", constants);
  put_member("data/constants/tensor_0", "0123456789abcdef", 16);
  put_json("models/model.json", model);
  put_end();
  if (fclose(out)) stop(argv[2]);
  return 0;
}
