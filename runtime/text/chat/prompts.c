// SPDX-License-Identifier: MIT
// Prompts, and their answers.
#include "text/chat/prompts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "tensors/tensors.h"
#include "text/chat/text_file.h"

long vocabulary(void)
{
  for (int i = 0; i < program->ntensors; i++)
    if (!program->tensors[i].name.rest &&
        strcmp(program->tensors[i].name.name, "decode.tokens") == 0)
      return (long)program->tensors[i].init.of[1];
  return 0;
}

bool ids_are_known(const struct ids *ids, const char *where, struct failure *why)
{
  for (size_t i = 0; i < ids->count; i++)
    if (ids->at[i] < 0 || ids->at[i] >= vocabulary())
      return failed(why, "%s: %d is not a token: they are 0 to %ld", where, ids->at[i],
                    vocabulary() - 1);
  return true;
}

bool text_ids(const struct tokenizer *tokenizer, const char *text, size_t length, struct ids *ids,
              const char *where, struct failure *why)
{
  if (!tokenizer)
    return failed(why,
                  "%s: a text needs a tokenizer: say --tokenizer FILE, or --weights with a "
                  "folder that has tokenizer.json; or give {\"ids\": [...]}",
                  where);
  return tokenizer_encode(tokenizer, text, length, true, ids, why);
}

bool listed_ids(const json_t *list, struct ids *ids, const char *where, struct failure *why)
{
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    const json_int_t number = json_integer_value(id);
    if (!json_is_integer(id) || number < 0 || number >= vocabulary())
      return failed(why, "%s: element %zu of \"ids\" is not a token: they are 0 to %ld", where, i,
                    vocabulary() - 1);
    add_id(ids, (int)number);
  }
  return !ids->failed || failed(why, "out of memory for prompts");
}

static bool add_prompt(struct prompts *p, const struct ids *ids, const char *where,
                       struct failure *why)
{
  const int context = program->generation->context;
  if (ids->count == 0) return failed(why, "%s: a prompt has no tokens", where);
  if (ids->count >= (size_t)context)
    return failed(why,
                  "%s: the prompt has %zu tokens, and the context is %d: leave one "
                  "for the answer",
                  where, ids->count, context);
  if (!ids_are_known(ids, where, why)) return false;
  struct prompt *all = realloc(p->all, (p->count + 1) * sizeof *all);
  int *own = calloc((size_t)context, sizeof *own);
  if (all) p->all = all;
  if (!all || !own) {
    free(own);
    return failed(why, "out of memory for prompts");
  }
  memcpy(own, ids->at, ids->count * sizeof *own);
  p->all[p->count++] = (struct prompt){own, (int)ids->count};
  return true;
}

static bool add_text(struct prompts *p, const char *text, size_t length,
                     const struct tokenizer *tokenizer, const char *where, struct failure *why)
{
  struct ids ids = {0};
  const bool ok =
      text_ids(tokenizer, text, length, &ids, where, why) && add_prompt(p, &ids, where, why);
  free(ids.at);
  return ok;
}

static bool add_ids(struct prompts *p, const json_t *list, const char *where, struct failure *why)
{
  struct ids ids = {0};
  const bool ok = listed_ids(list, &ids, where, why) && add_prompt(p, &ids, where, why);
  free(ids.at);
  return ok;
}

static bool add_json(struct prompts *p, const char *line, size_t length,
                     const struct tokenizer *tokenizer, const char *where, struct failure *why)
{
  json_error_t error;
  json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  const json_t *text = json_object_get(object, "text"), *ids = json_object_get(object, "ids");
  bool ok;
  if (json_memory_ended())
    ok = failed(why, "out of memory for prompts");
  else if (!object)
    ok = failed(why, "%s: not JSON: %s", where, error.text);
  else if (json_is_array(ids) && !text)
    ok = add_ids(p, ids, where, why);
  else if (json_is_string(text) && !ids)
    ok = add_text(p, json_string_value(text), json_string_length(text), tokenizer, where, why);
  else
    ok = failed(why, "%s: a prompt is {\"text\": \"...\"} or {\"ids\": [...]}", where);
  json_decref(object);
  return ok;
}

bool conversation_ids(const struct chat *c, const struct tokenizer *tokenizer,
                      const json_t *variables, struct ids *ids, struct failure *why)
{
  struct bytes text = {0};
  const bool ok = chat_render(c, variables, NULL, &text, NULL, why) &&
                  tokenizer_encode(tokenizer, text.at ? text.at : "", text.count,
                                   !chat_is_special(c), ids, why);
  free_bytes(&text);
  return ok;
}

struct reader {
  struct prompts *to;
  const struct tokenizer *tokenizer;
};

static bool take_line(void *to, const char *line, size_t length, const char *where,
                      struct failure *why)
{
  const struct reader *r = to;
  return (line[0] == '{' ? add_json : add_text)(r->to, line, length, r->tokenizer, where, why);
}

bool prompts_read(struct prompts *p, const struct options *o, const struct tokenizer *tokenizer,
                  struct failure *why)
{
  if (o->prompt) return add_text(p, o->prompt, strlen(o->prompt), tokenizer, "--prompt", why);
  struct reader reader = {p, tokenizer};
  return each_line(o->prompts, take_line, &reader, why) &&
         (p->count > 0 || failed(why, "%s: it has no prompts", o->prompts));
}

void prompts_free(struct prompts *p)
{
  for (size_t i = 0; i < p->count; i++) free(p->all[i].ids);
  free(p->all);
  *p = (struct prompts){0};
}
