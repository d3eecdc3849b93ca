// SPDX-License-Identifier: MIT
// See RFC 9112 (messages of HTTP/1.1) and RFC 9110 (fields).
#include "text/server/head.h"

#include <string.h>
#include <strings.h>

// ---- characters --------------------------------------------------------------------------------

static bool is_digit(char c)
{
  return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_token(char c)
{
  return c && (is_digit(c) || is_letter(c) || strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(char c)
{
  return c == ' ' || c == '\t';
}

// Of a field's value: no control character, above all no CR, LF or NUL.
static bool is_text(char c)
{
  return c == '\t' || ((unsigned char)c >= ' ' && c != 127);
}

static int hex_of(char c)
{
  if (is_digit(c)) return c - '0';
  const char lower = (char)(c | 32);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static struct refusal bad(const char *why)
{
  return (struct refusal){400, why};
}

// ---- lists -------------------------------------------------------------------------------------

// The next element of a list with commas, and its length; NULL: the end. Empty ones count for
// nothing.
static const char *next_element(const char **at, size_t *count)
{
  const char *p = *at;
  while (*p == ',' || is_blank(*p)) p++;
  const size_t whole = strcspn(p, ",");
  *at = p + whole;
  for (*count = whole; *count > 0 && is_blank(p[*count - 1]);) --*count;
  return *p ? p : NULL;
}

static bool is_word(const char *text, size_t count, const char *word)
{
  return strlen(word) == count && strncasecmp(text, word, count) == 0;
}

// ---- the request line --------------------------------------------------------------------------

static bool decode(char *path)
{
  char *to = path;
  for (const char *from = path; *from; from++) {
    char c = *from;
    if (c == '%') {
      const int high = hex_of(from[1]), low = high < 0 ? -1 : hex_of(from[2]);
      if (low < 0 || high + low == 0) return false;
      c = (char)(high * 16 + low);
      from += 2;
    }
    *to++ = c;
  }
  *to = 0;
  return true;
}

// "/v1/models?x", "http://host/v1/models", or "*".
static struct refusal read_target(struct head *head, char *target)
{
  const struct refusal wrong = bad("the request's target is not a path");
  for (const char *p = target; *p; p++)
    if ((unsigned char)*p <= ' ' || *p == 127 || *p == '#') return wrong;
  if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
    target = strstr(target, "//") + 2;
    if (*target == '/' || *target == '?' || !*target) return wrong;
    target += strcspn(target, "/?");
    if (*target != '/') *--target = '/'; // no path: in place of the host's last character
  }
  if (*target != '/' && strcmp(target, "*") != 0) return wrong;
  target[strcspn(target, "?")] = 0;
  if (!decode(target)) return wrong;
  head->path = target;
  return (struct refusal){0};
}

static struct refusal read_request_line(struct head *head, char *line)
{
  char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
  if (!version || target == line) return bad("the request line is not METHOD TARGET HTTP/1.1");
  *target++ = 0;
  *version++ = 0;
  for (const char *p = line; *p; p++)
    if (!is_token(*p)) return bad("the method is no word");
  if (strncmp(version, "HTTP/", 5) != 0 || !is_digit(version[5]) || version[6] != '.' ||
      !is_digit(version[7]) || version[8])
    return bad("the request line does not end with HTTP/1.1");
  if (version[5] != '1') return (struct refusal){505, "this server speaks HTTP/1.1"};
  head->method = line;
  head->is_1_0 = version[7] == '0';
  if (!*target) return bad("the request has no target");
  return read_target(head, target);
}

// ---- fields ------------------------------------------------------------------------------------

// The fields that decide where a request ends, and which host it is for.
struct fields {
  const char *host, *length;
  int hosts, lengths, codings, chunked; // how many; codings of a transfer
  bool others, chunked_last;
  bool keeps; // Connection: keep-alive
};

static void read_codings(struct fields *f, const char *value)
{
  size_t count;
  f->codings++; // an empty list is one, too
  for (const char *c; (c = next_element(&value, &count));) {
    f->chunked_last = is_word(c, count, "chunked");
    f->chunked += f->chunked_last;
    f->others |= !f->chunked_last;
  }
}

static void read_connection(struct head *head, struct fields *f, const char *value)
{
  size_t count;
  for (const char *c; (c = next_element(&value, &count));) {
    head->closes |= is_word(c, count, "close");
    f->keeps |= is_word(c, count, "keep-alive");
  }
}

static struct refusal read_field(struct head *head, struct fields *f, char *line, char *end)
{
  char *value = line;
  if (is_blank(*line)) return bad("a header goes on in another line");
  while (is_token(*value)) value++;
  if (value == line || *value != ':') return bad("a header is not NAME: VALUE");
  *value++ = 0;
  while (is_blank(*value)) value++;
  while (end > value && is_blank(end[-1])) *--end = 0;
  if (strcasecmp(line, "Host") == 0) {
    f->host = value;
    f->hosts++;
  } else if (strcasecmp(line, "Content-Length") == 0) {
    f->length = value;
    f->lengths++;
  } else if (strcasecmp(line, "Transfer-Encoding") == 0) {
    read_codings(f, value);
  } else if (strcasecmp(line, "Connection") == 0) {
    read_connection(head, f, value);
  } else if (strcasecmp(line, "Authorization") == 0) {
    if (head->authorization) return bad("there are two headers Authorization");
    head->authorization = value;
  } else if (strcasecmp(line, "Content-Type") == 0) {
    if (head->content_type) return bad("there are two headers Content-Type");
    head->content_type = value;
  } else if (strcasecmp(line, "Expect") == 0) {
    if (strcasecmp(value, "100-continue") != 0)
      return (struct refusal){417, "Expect can only be 100-continue"};
    head->waits = !head->is_1_0;
  }
  return (struct refusal){0};
}

static struct refusal check_host(const struct head *head, const struct fields *f)
{
  if (f->hosts > 1) return bad("there are two headers Host");
  if (f->hosts == 0) return head->is_1_0 ? (struct refusal){0} : bad("there is no header Host");
  for (const char *p = f->host; *p; p++)
    if (!is_digit(*p) && !is_letter(*p) && !strchr("-._~%!$&'()*+,;=:[]", *p))
      return bad("the header Host names no host");
  return (struct refusal){0};
}

// Where the body ends.
static struct refusal read_framing(struct head *head, const struct fields *f)
{
  if (f->codings > 0) {
    if (f->lengths > 0) return bad("there are both Content-Length and Transfer-Encoding");
    if (head->is_1_0) return bad("HTTP/1.0 has no Transfer-Encoding");
    if (f->chunked != 1 || !f->chunked_last) return bad("Transfer-Encoding is not chunked");
    if (f->others) return (struct refusal){501, "Transfer-Encoding can only be chunked"};
    head->has_body = head->is_chunked = true;
    return (struct refusal){0};
  }
  if (f->lengths == 0) return (struct refusal){0};
  if (f->lengths > 1) return bad("there are two headers Content-Length");
  const char *p = f->length;
  bool is_large = false;
  for (; is_digit(*p); p++) {
    is_large |= head->length > (UINT64_MAX - 9) / 10;
    head->length = head->length * 10 + (uint64_t)(*p - '0');
  }
  if (*p || p == f->length) return bad("Content-Length is no number of bytes");
  if (is_large) return (struct refusal){413, "the body is too large"};
  head->has_body = head->length > 0;
  return (struct refusal){0};
}

// ---- a head ------------------------------------------------------------------------------------

size_t head_length(const char *text, size_t count)
{
  size_t at = 0;
  while (at + 1 < count && memcmp(text + at, "\r\n", 2) == 0) at += 2;
  const char *end = count > at ? memmem(text + at, count - at, "\r\n\r\n", 4) : NULL;
  return end ? (size_t)(end - text) + 4 : 0;
}

bool head_is_broken(const char *text, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (is_text(text[i])) continue;
    if (text[i] != '\r') return true;
    if (++i < count && text[i] != '\n') return true;
  }
  return false;
}

struct refusal head_read(struct head *head, char *text, size_t count)
{
  struct fields f = {0};
  struct refusal r = {0};
  bool is_first = true;
  *head = (struct head){0};
  for (char *end; count > 0 && r.status == 0; count -= (size_t)(end + 2 - text), text = end + 2) {
    end = text;
    while (end < text + count && is_text(*end)) end++;
    if (end + 1 >= text + count || end[0] != '\r' || end[1] != '\n')
      return bad("a line of the head has a control character, or does not end with CR and LF");
    *end = 0;
    if (end == text) continue; // before the request line, or the last one
    r = is_first ? read_request_line(head, text) : read_field(head, &f, text, end);
    is_first = false;
  }
  if (r.status == 0 && is_first) r = bad("there is no request line");
  if (r.status == 0) r = check_host(head, &f);
  if (r.status == 0) r = read_framing(head, &f);
  head->closes |= head->is_1_0 && !f.keeps;
  head->waits &= head->has_body;
  return r;
}

// ---- chunks ------------------------------------------------------------------------------------

enum { SIZE, EXTENSION, SIZE_END, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LF };

// A byte that is not of the body.
static struct refusal take_framing(struct chunks *c, char byte)
{
  const struct refusal wrong = bad("a chunk of the body is not framed as HTTP says"), ok = {0};
  const bool in_trailer = c->stage == TRAILER || c->stage == TRAILER_LF;
  if (in_trailer ? ++c->trailer > MOST_HEAD : ++c->line > MOST_LINE_OF_CHUNKS)
    return bad("a line of the body's chunks is too long");
  switch (c->stage) {
  case SIZE:
    if (hex_of(byte) >= 0) {
      if (c->left >> 59) return wrong;
      c->left = c->left * 16 + (uint64_t)hex_of(byte);
      c->digits = true;
      return ok;
    }
    if (!c->digits || !(byte == '\r' || byte == ';')) return wrong;
    c->stage = byte == ';' ? EXTENSION : SIZE_END;
    return ok;
  case EXTENSION:
    if (byte == '\r') c->stage = SIZE_END;
    return byte == '\r' || is_text(byte) ? ok : wrong;
  case SIZE_END:
    c->stage = c->left > 0 ? DATA : TRAILER;
    c->line = 0;
    return byte == '\n' ? ok : wrong;
  case DATA_CR:
    c->stage = DATA_LF;
    return byte == '\r' ? ok : wrong;
  case DATA_LF:
    c->stage = SIZE;
    c->digits = false;
    c->line = 0;
    return byte == '\n' ? ok : wrong;
  case TRAILER:
    if (byte == '\r')
      c->stage = TRAILER_LF;
    else
      c->line++;
    return byte == '\r' || is_text(byte) ? ok : wrong;
  default: // TRAILER_LF
    c->ended = c->line == 0;
    c->line = 0;
    c->stage = TRAILER;
    return byte == '\n' ? ok : wrong;
  }
}

size_t chunks_take(struct chunks *c, char *text, size_t count, size_t *some,
                   struct refusal *refusal)
{
  size_t at = 0;
  *some = 0;
  *refusal = (struct refusal){0};
  while (at < count && !c->ended && refusal->status == 0) {
    if (c->stage != DATA) {
      *refusal = take_framing(c, text[at++]);
      continue;
    }
    const size_t n = count - at < c->left ? count - at : (size_t)c->left;
    memmove(text + *some, text + at, n);
    *some += n;
    at += n;
    c->left -= n;
    if (c->left == 0) c->stage = DATA_CR;
  }
  return at;
}
