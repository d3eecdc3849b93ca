/* collectives plan.json: prints `phase kind group bytes`, a line for each collective of a step. */
#include <jansson.h>
#include <stdio.h>

int main(int argc, char **argv)
{
  json_error_t error;
  json_t *plan = argc == 2 ? json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error) : NULL;
  json_t *list = json_object_get(plan, "collectives"), *one;
  if (!json_is_array(list)) {
    fprintf(stderr, "collectives: no file of JSON with a list of collectives\n");
    return 1;
  }
  size_t i;
  json_array_foreach(list, i, one)
  {
    const char *phase, *kind, *group;
    json_int_t bytes;
    if (json_unpack_ex(one, &error, 0, "{s:s, s:s, s:s, s:I}", "phase", &phase, "kind", &kind,
                       "group", &group, "bytes", &bytes)) {
      fprintf(stderr, "collectives: collective %zu: %s\n", i, error.text);
      return 1;
    }
    printf("%s %s %s %lld\n", phase, kind, group, (long long)bytes);
  }
  return 0;
}
