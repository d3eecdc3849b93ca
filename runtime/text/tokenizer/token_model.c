// SPDX-License-Identifier: MIT
// The model of a tokenizer: one of four types; a word is a token where it is WordLevel.
#include "text/tokenizer/token_model.h"

#include <stdlib.h>
#include <string.h>
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

struct token_model {
  struct vocabulary tokens;
  struct bpe *bpe; // one of these three; NULL for WordLevel
  struct unigram *unigram;
  struct wordpiece *wordpiece;
  int unknown; // WordLevel's, or -1
};

static bool read_table(struct token_model *m, const json_t *vocab, const char *path,
                       struct failure *why)
{
  const char *text;
  json_t *id;
  if (!json_is_object(vocab) || json_object_size(vocab) == 0)
    return failed(why, "%s: model.vocab is not a table of tokens", path);
  json_object_foreach((json_t *)vocab, text, id)
  {
    if (!json_is_integer(id)) return failed(why, "%s: the token '%.40s' has no id", path, text);
    if (!vocabulary_add(&m->tokens, text, strlen(text), json_integer_value(id), path, why))
      return false;
  }
  return true;
}

// Files from before there were types have none.
static const char *type_of(const json_t *model)
{
  const char *type = json_string_value(json_object_get(model, "type"));
  if (type) return type;
  if (json_object_get(model, "merges")) return "BPE";
  if (json_is_array(json_object_get(model, "vocab"))) return "Unigram";
  return json_object_get(model, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

static bool read_model(struct token_model *m, const json_t *model, const char *path,
                       struct failure *why)
{
  const char *type = type_of(model);
  const json_t *vocab = json_object_get(model, "vocab");
  if (strcmp(type, "Unigram") == 0)
    return (m->unigram = unigram_open(model, &m->tokens, path, why)) != NULL;
  const bool is_bpe = strcmp(type, "BPE") == 0, is_pieces = strcmp(type, "WordPiece") == 0;
  if (!is_bpe && !is_pieces && strcmp(type, "WordLevel") != 0)
    return failed(why,
                  "%s: its model is %.40s; this program knows BPE, Unigram, WordPiece and "
                  "WordLevel",
                  path, type);
  if (!read_table(m, vocab, path, why)) return false;
  if (is_bpe) return (m->bpe = bpe_open(model, &m->tokens, path, why)) != NULL;
  if (is_pieces) return (m->wordpiece = wordpiece_open(model, &m->tokens, path, why)) != NULL;
  const json_t *name = json_object_get(model, "unk_token");
  if (!json_is_string(name)) return failed(why, "%s: model.unk_token is not text", path);
  m->unknown = vocabulary_id(&m->tokens, json_string_value(name), json_string_length(name));
  return true;
}

struct token_model *token_model_open(const json_t *model, const char *path, struct failure *why)
{
  struct token_model *m = calloc(1, sizeof *m);
  if (!m) {
    failed(why, "%s: out of memory", path);
    return NULL;
  }
  if (read_model(m, model, path, why)) return m;
  token_model_close(m);
  return NULL;
}

void token_model_close(struct token_model *m)
{
  if (!m) return;
  bpe_close(m->bpe);
  unigram_close(m->unigram);
  wordpiece_close(m->wordpiece);
  vocabulary_free(&m->tokens);
  free(m);
}

const struct vocabulary *token_model_tokens(const struct token_model *m)
{
  return &m->tokens;
}

bool token_model_encode(const struct token_model *m, const char *word, size_t count,
                        struct ids *ids, struct failure *why)
{
  if (count == 0) return true;
  if (m->bpe) return bpe_encode(m->bpe, word, count, ids, why);
  if (m->unigram) return unigram_encode(m->unigram, word, count, ids, why);
  if (m->wordpiece) return wordpiece_encode(m->wordpiece, word, count, ids, why);
  const int known = vocabulary_id(&m->tokens, word, count);
  if (known < 0 && m->unknown < 0)
    return failed(why, "the tokenizer has no token for unknown words");
  add_id(ids, known >= 0 ? known : m->unknown);
  return !ids->failed || failed(why, "out of memory for a text");
}
