/* check_schema SCHEMA FILE...: whether each file conforms to a JSON Schema. It supports the
   keywords of plans/plan.schema.json, and refuses a schema with others. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *schema;
static const char *file;

static bool is_quiet; /* while one rule of several is tried */

static bool refuse(const char *path, const char *what)
{
  if (!is_quiet) fprintf(stderr, "%s: %s: %s\n", file, *path ? path : "/", what);
  return false;
}

static bool is_type(const json_t *value, const char *type)
{
  if (!strcmp(type, "object")) return json_is_object(value);
  if (!strcmp(type, "array")) return json_is_array(value);
  if (!strcmp(type, "string")) return json_is_string(value);
  if (!strcmp(type, "integer")) return json_is_integer(value);
  if (!strcmp(type, "number")) return json_is_number(value);
  if (!strcmp(type, "boolean")) return json_is_boolean(value);
  if (!strcmp(type, "null")) return json_is_null(value);
  fprintf(stderr, "the schema has an unknown type: %s\n", type);
  exit(2);
}

static bool has_type(const json_t *value, const json_t *type)
{
  size_t i;
  json_t *one;
  if (json_is_string(type)) return is_type(value, json_string_value(type));
  json_array_foreach(type, i, one) if (is_type(value, json_string_value(one))) return true;
  return false;
}

static bool is_one_of(const json_t *value, const json_t *list)
{
  size_t i;
  json_t *one;
  json_array_foreach(list, i, one) if (json_equal(value, one)) return true;
  return false;
}

static const json_t *definition(const char *reference)
{
  const char *start = "#/$defs/";
  const json_t *found = NULL;
  if (!strncmp(reference, start, strlen(start)))
    found = json_object_get(json_object_get(schema, "$defs"), reference + strlen(start));
  if (found) return found;
  fprintf(stderr, "the schema has no %s\n", reference);
  exit(2);
}

static bool fulfils(const json_t *value, const json_t *rule, const char *path);

/* Whether it fulfils a rule of the list. */
static bool fulfils_any(const json_t *value, const json_t *list, const char *path)
{
  size_t i;
  json_t *rule;
  bool any = false, was_quiet = is_quiet;
  is_quiet = true;
  json_array_foreach(list, i, rule) any |= fulfils(value, rule, path);
  is_quiet = was_quiet;
  return any || refuse(path, "it fulfils no rule of anyOf");
}

/* Every member of an object; `rule` has properties and perhaps additionalProperties. */
static bool members_fulfil(const json_t *object, const json_t *rule, const char *path)
{
  const json_t *properties = json_object_get(rule, "properties");
  const json_t *others = json_object_get(rule, "additionalProperties");
  bool right = true;
  const char *name;
  json_t *member;
  json_object_foreach((json_t *)(size_t)object, name, member)
  {
    char below[512];
    const json_t *own = json_object_get(properties, name);
    snprintf(below, sizeof below, "%s/%s", path, name);
    if (!own) own = others;
    if (own && json_is_false(own)) right = refuse(below, "no such member");
    if (json_is_object(own)) right &= fulfils(member, own, below);
  }
  return right;
}

static bool items_fulfil(const json_t *list, const json_t *rule, const char *path)
{
  bool right = true;
  for (size_t i = 0; i < json_array_size(list); i++) {
    char below[512];
    snprintf(below, sizeof below, "%s/%zu", path, i);
    right &= fulfils(json_array_get(list, i), rule, below);
  }
  return right;
}

static bool has_all(const json_t *object, const json_t *names, const char *path)
{
  bool right = true;
  for (size_t i = 0; i < json_array_size(names); i++) {
    const char *name = json_string_value(json_array_get(names, i));
    char what[256];
    snprintf(what, sizeof what, "%s is missing", name);
    if (!json_object_get(object, name)) right = refuse(path, what);
  }
  return right;
}

/* One keyword of a rule. */
static bool keyword_holds(const json_t *value, const json_t *rule, const char *word,
                          const json_t *with, const char *path)
{
  static const char *const silent[] = {"$schema", "title", "description", "$defs",
                                       "additionalProperties"};
  for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
    if (!strcmp(word, silent[i])) return true;
  if (!strcmp(word, "$ref")) return fulfils(value, definition(json_string_value(with)), path);
  if (!strcmp(word, "type")) return has_type(value, with) || refuse(path, "it has another type");
  if (!strcmp(word, "enum")) return is_one_of(value, with) || refuse(path, "no such value");
  if (!strcmp(word, "const")) return json_equal(value, with) || refuse(path, "another value");
  if (!strcmp(word, "minimum"))
    return !json_is_number(value) || json_number_value(value) >= json_number_value(with) ||
           refuse(path, "too small");
  if (!strcmp(word, "required")) return !json_is_object(value) || has_all(value, with, path);
  if (!strcmp(word, "anyOf")) return fulfils_any(value, with, path);
  if (!strcmp(word, "properties"))
    return !json_is_object(value) || members_fulfil(value, rule, path);
  if (!strcmp(word, "items")) return !json_is_array(value) || items_fulfil(value, with, path);
  fprintf(stderr, "the schema has an unknown keyword: %s\n", word);
  exit(2);
}

static bool fulfils(const json_t *value, const json_t *rule, const char *path)
{
  bool right = true;
  const char *word;
  json_t *with;
  json_object_foreach((json_t *)(size_t)rule, word, with) right &=
      keyword_holds(value, rule, word, with, path);
  return right;
}

int main(int argc, char **argv)
{
  json_error_t error;
  bool right = argc > 2;
  schema = argc > 2 ? json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error) : NULL;
  if (!schema) {
    fprintf(stderr, "usage: check_schema SCHEMA FILE..., with a schema that can be read\n");
    return 2;
  }
  for (int i = 2; i < argc; i++) {
    file = argv[i];
    json_t *value = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    right &= value ? fulfils(value, schema, "") : refuse("", error.text);
    json_decref(value);
  }
  json_decref(schema);
  return !right;
}
