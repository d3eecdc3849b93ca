// SPDX-License-Identifier: MIT
// Texts as tokens, without a run: --encode.
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/open_input.h"
#include "text/chat/prompts.h"
#include "text/chat/settings.h"
#include "text/chat/text_file.h"
#include "text/generate.h"

struct encoding {
  const struct options *options;
  const struct tokenizer *tokenizer;
  struct chat *chat; // opened with the first conversation
  FILE *to;
};

static json_t *list_of(const struct ids *ids)
{
  json_t *list = json_array();
  for (size_t i = 0; i < ids->count; i++) json_array_append_new(list, json_integer(ids->at[i]));
  return list;
}

static bool write_object(const struct encoding *e, json_t *object, struct failure *why)
{
  char *line = json_dumps(object, JSON_COMPACT);
  bool ok = true;
  if (json_memory_ended() || !line)
    ok = failed(why, "out of memory for a line");
  else if (fprintf(e->to, "%s\n", line) < 0)
    ok = failed(why, "the tokens could not be written: %s", strerror(errno));
  free(line);
  json_decref(object);
  return ok;
}

static bool write_tokens(const struct encoding *e, const char *text, size_t length,
                         struct failure *why)
{
  struct ids ids = {0}, special = {0};
  struct bytes decoded = {0};
  bool ok = tokenizer_encode(e->tokenizer, text, length, false, &ids, why) &&
            tokenizer_encode(e->tokenizer, text, length, true, &special, why) &&
            tokenizer_decode(e->tokenizer, ids.at, ids.count, false, &decoded, why);
  if (ok) {
    json_t *object = json_object();
    json_object_set_new(object, "ids", list_of(&ids));
    json_object_set_new(object, "ids_special", list_of(&special));
    json_object_set_new(object, "decoded",
                        json_stringn(decoded.at ? decoded.at : "", decoded.count));
    ok = write_object(e, object, why);
  }
  free(ids.at);
  free(special.at);
  free_bytes(&decoded);
  return ok;
}

// {"messages": [...], "add_generation_prompt": true, ...}: the text by the chat template, and ids.
static bool write_conversation(struct encoding *e, const json_t *variables, struct failure *why)
{
  struct bytes text = {0};
  struct ids ids = {0};
  if (!e->chat && !settings_chat(&e->chat, e->options, why)) return false;
  if (!chat_is_special(e->chat)) return failed(why, "--raw has no template for conversations");
  bool ok = chat_render(e->chat, variables, NULL, &text, NULL, why) &&
            tokenizer_encode(e->tokenizer, text.at, text.count, false, &ids, why);
  if (ok) {
    json_t *object = json_object();
    json_object_set_new(object, "text", json_stringn(text.at, text.count));
    json_object_set_new(object, "ids", list_of(&ids));
    ok = write_object(e, object, why);
  }
  free_bytes(&text);
  free(ids.at);
  return ok;
}

static bool take_line(void *to, const char *line, size_t length, const char *where,
                      struct failure *why)
{
  json_error_t error;
  if (line[0] != '{') return write_tokens(to, line, length, why);
  json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  const json_t *text = json_object_get(object, "text");
  struct failure reason;
  bool ok = true;
  if (!object)
    ok = failed(why, "%s: not JSON: %s", where, error.text);
  else if (json_is_array(json_object_get(object, "messages")))
    ok = write_conversation(to, object, &reason) || failed(why, "%s: %s", where, reason.text);
  else if (!json_is_string(text))
    ok = failed(why, "%s: it has no \"text\" and no \"messages\"", where);
  else
    ok = write_tokens(to, json_string_value(text), json_string_length(text), why);
  json_decref(object);
  return ok;
}

bool text_encode(const struct options *o, struct failure *why)
{
  struct tokenizer *tokenizer = NULL;
  if (!settings_tokenizer(&tokenizer, o, why)) return false;
  if (!tokenizer)
    return failed(
        why, "--encode needs --tokenizer FILE, or --weights with a folder that has tokenizer.json");
  struct encoding e = {.options = o,
                       .tokenizer = tokenizer,
                       .to = o->output ? create_stream(o->output, why) : stdout};
  bool ok = e.to && each_line(o->encode, take_line, &e, why);
  if (e.to && (e.to == stdout ? fflush(e.to) : fclose(e.to)) != 0 && ok)
    ok = failed(why, "the tokens could not be written: %s", strerror(errno));
  chat_close(e.chat);
  tokenizer_close(tokenizer);
  return ok;
}
