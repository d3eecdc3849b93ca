/* json_text.c: JSON that tpgen writes. (json_files.c reads JSON.) */
#include "util/util.h"

void json_member(json_t *object, const char *name, json_t *value)
{
  if (json_object_set_new(object, name, value)) bug("emit", "no JSON for '%s'", name);
}

void json_append(json_t *list, json_t *value)
{
  if (json_array_append_new(list, value)) bug("emit", "a value without JSON in a list");
}

/* jansson's writer ignores a failed allocation: the text is parsed to know that it is complete. */
char *json_text(const json_t *whole, size_t flags)
{
  char *text = whole ? json_dumps(whole, flags) : NULL;
  json_t *again = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
  if (!again || !json_equal(whole, again)) bug("emit", "what is written is not the JSON");
  return text;
}
