// The framing of requests: what is taken and what is refused, in one piece and cut at every place.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/server/head.h"

#define LINE    "POST /v1/completions HTTP/1.1\r\n"
#define HOST    "Host: a\r\n"
#define TEXT(t) t, sizeof(t) - 1

struct request {
  const char *text;
  size_t count;
  unsigned status;
  long length; // of its body; -1: it is in chunks
};

static const struct request requests[] = {
    {TEXT(LINE HOST "\r\n"), 0, 0},
    {TEXT(LINE HOST "Content-Length: 5\r\n\r\n"), 0, 5},
    {TEXT(LINE HOST "content-length:5\t \r\n\r\n"), 0, 5},
    {TEXT(LINE HOST "Content-Length: 005\r\n\r\n"), 0, 5},
    {TEXT(LINE HOST "Transfer-Encoding: chunked\r\n\r\n"), 0, -1},
    {TEXT(LINE HOST "Transfer-Encoding: , Chunked ,\r\n\r\n"), 0, -1},
    {TEXT("\r\n\r\n" LINE HOST "\r\n"), 0, 0},
    {TEXT("GET http://host/x?y HTTP/1.1\r\nHost: host\r\n\r\n"), 0, 0},
    {TEXT("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n"), 0, 0},
    {TEXT("GET / HTTP/1.0\r\n\r\n"), 0, 0},
    {TEXT("GET /\xc3\xa9 HTTP/1.1\r\nHost: [::1]:80\r\nX: \xff\t a\r\n\r\n"), 0, 0},
    // The length.
    {TEXT(LINE HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 5, 5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 5 5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: +5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: -5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 0x5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 5.0\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: \r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 5\0\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length : 5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length\t: 5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Content-Length: 18446744073709551616\r\n\r\n"), 413, 0},
    {TEXT(LINE HOST "Content-Length: 18446744073709551621\r\n\r\n"), 413, 0},
    // The coding.
    {TEXT(LINE HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding : chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: chunked, chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501, 0},
    {TEXT(LINE HOST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"), 501, 0},
    {TEXT(LINE HOST "Transfer-Encoding: identity\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: xchunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: chunked;q=1\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: \"chunked\"\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding: chunked\v\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Transfer-Encoding:\r\n\r\n"), 400, 0},
    {TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0},
    // Lines.
    {TEXT(LINE "\r\n"), 400, 0},
    {TEXT(LINE HOST HOST "\r\n"), 400, 0},
    {TEXT("GET / HTTP/1.0\r\n" HOST HOST "\r\n"), 400, 0},
    {TEXT(LINE "Host: a b\r\n\r\n"), 400, 0},
    {TEXT(LINE "Host: a/b\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X: a\rTransfer-Encoding: chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X: a\r\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X: a\nTransfer-Encoding: chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X: a\r\n Transfer-Encoding: chunked\r\n\r\n"), 400, 0},
    {TEXT(LINE " X: a\r\n" HOST "\r\n"), 400, 0},
    {TEXT(LINE HOST "X: a\0b\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X\0: a\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X: \x7f\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X a\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "X(a: b\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST ": a\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Authorization: a\r\nAuthorization: b\r\n\r\n"), 400, 0},
    {TEXT(LINE HOST "Expect: tea\r\n\r\n"), 417, 0},
    // The request line.
    {TEXT("GET  / HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /  HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET / HTTP/1.1 \r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /a b HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT(" GET / HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /\r\n\r\n"), 400, 0},
    {TEXT("GET / http/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET / HTTP/1.1x\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET / HTTP/11\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET / HTTP/2.0\r\n" HOST "\r\n"), 505, 0},
    {TEXT("G\tT / HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET x HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /%00 HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /%4 HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /%xx HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET /a#b HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("GET http:///x HTTP/1.1\r\n" HOST "\r\n"), 400, 0},
    {TEXT("PRI * HTTP/2.0\r\n\r\n"), 505, 0},
    {TEXT("\x16\x03\x01\r\n\r\n"), 400, 0},
};

static void test_heads(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    const struct request *r = &requests[i];
    char *text = malloc(r->count);
    struct head head;
    memcpy(text, r->text, r->count);
    for (size_t n = 0; n < r->count; n++) {
      assert_int_equal(head_length(text, n), 0);
      if (r->status == 0) assert_false(head_is_broken(text, n));
    }
    assert_int_equal(head_length(text, r->count), r->count);
    const struct refusal got = head_read(&head, text, r->count);
    if (got.status != r->status) fail_msg("%s: %u, not %u", r->text, got.status, r->status);
    assert_true((got.status != 0) == (got.why != NULL));
    if (got.status == 0) {
      assert_int_equal(head.is_chunked, r->length < 0);
      if (r->length >= 0) assert_int_equal(head.length, r->length);
    }
    free(text);
  }
}

static void test_parts_of_a_head(void **state)
{
  char text[] =
      "HEAD http://a/v1/%6dodels?x=/y HTTP/1.1\r\nHost: a\r\nAuthorization:  Bearer x \r\n"
      "Connection: x, Close\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n";
  struct head head;
  (void)state;
  assert_int_equal(head_read(&head, text, sizeof text - 1).status, 0);
  assert_string_equal(head.method, "HEAD");
  assert_string_equal(head.path, "/v1/models");
  assert_string_equal(head.authorization, "Bearer x");
  assert_null(head.content_type);
  assert_true(head.closes && head.waits && head.has_body);
}

static void test_targets(void **state)
{
  static const char *const paths[][2] = {{"/", "/"},          {"/v1/models?x=/y", "/v1/models"},
                                         {"*", "*"},          {"http://a", "/"},
                                         {"http://a?x", "/"}, {"HTTPS://a:1/?x", "/"},
                                         {"//a/x", "//a/x"},  {"/%2e%2E/x", "/../x"}};
  (void)state;
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    char text[128];
    struct head head;
    const int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", paths[i][0]);
    assert_int_equal(head_read(&head, text, (size_t)n).status, 0);
    assert_string_equal(head.path, paths[i][1]);
  }
}

static void test_unfinished_lines(void **state)
{
  (void)state;
  assert_false(head_is_broken(TEXT("GET / HTTP/1.1\r")));
  assert_true(head_is_broken(TEXT("GET / HTTP/1.1\n")));
  assert_true(head_is_broken(TEXT("GET / HTTP/1.1\rX")));
  assert_true(head_is_broken(TEXT("GET /\0")));
}

static const struct {
  const char *text;
  size_t count;
  const char *body; // NULL: it is refused
} bodies[] = {
    {TEXT("0\r\n\r\n"), ""},
    {TEXT("5\r\nabcde\r\n0\r\n\r\n"), "abcde"},
    {TEXT("0005\r\nabcde\r\n000\r\n\r\n"), "abcde"},
    {TEXT("a\r\n0123456789\r\n1;x=\"y\"\r\nz\r\n0\r\nX: y\r\nZ:\r\n\r\n"), "0123456789z"},
    {TEXT("A\r\n01234\r\n789\r\n0\r\n\r\n"), "01234\r\n789"},
    {TEXT("x\r\n"), NULL},
    {TEXT("\r\n"), NULL},
    {TEXT(";\r\n"), NULL},
    {TEXT("-1\r\n"), NULL},
    {TEXT("0x1\r\na\r\n0\r\n\r\n"), NULL},
    {TEXT(" 1\r\na\r\n0\r\n\r\n"), NULL},
    {TEXT("1 \r\na\r\n0\r\n\r\n"), NULL},
    {TEXT("1\na\r\n0\r\n\r\n"), NULL},
    {TEXT("1\r\na\n0\r\n\r\n"), NULL},
    {TEXT("1\r\nab\r\n0\r\n\r\n"), NULL},
    {TEXT("1\r\na0\r\n\r\n"), NULL},
    {TEXT("1;\rx\r\na\r\n0\r\n\r\n"), NULL},
    {TEXT("1;\nx\r\na\r\n0\r\n\r\n"), NULL},
    {TEXT("1;\0\r\na\r\n0\r\n\r\n"), NULL},
    {TEXT("10000000000000001\r\n"), NULL},
    {TEXT("ffffffffffffffffffff\r\n"), NULL},
    {TEXT("0\r\nX: \1\r\n\r\n"), NULL},
    {TEXT("0\r\nX: a\n\r\n"), NULL},
};

// In pieces of `piece` bytes, with a byte behind the body.
static void take(size_t i, size_t piece)
{
  struct chunks chunks = {0};
  struct refusal refusal = {0};
  char text[64], body[64] = "";
  size_t at = 0, got = 0;
  assert_true(bodies[i].count < sizeof text);
  memcpy(text, bodies[i].text, bodies[i].count);
  text[bodies[i].count] = 'G';
  const size_t all = bodies[i].count + 1;
  while (at < all && !chunks.ended && refusal.status == 0) {
    size_t some;
    const size_t n = all - at < piece ? all - at : piece;
    const size_t taken = chunks_take(&chunks, text + at, n, &some, &refusal);
    assert_true(taken == n || chunks.ended || refusal.status);
    memcpy(body + got, text + at, some);
    got += some;
    at += taken;
  }
  if (!bodies[i].body) {
    if (!refusal.status) fail_msg("%s is taken", bodies[i].text);
    return;
  }
  assert_int_equal(refusal.status, 0);
  assert_true(chunks.ended);
  assert_int_equal(at, bodies[i].count);
  assert_string_equal(body, bodies[i].body);
}

static void test_chunks(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
    for (size_t piece = 1; piece <= bodies[i].count + 1; piece++) take(i, piece);
}

static void test_long_lines_of_chunks(void **state)
{
  static char text[2 * MOST_HEAD];
  struct refusal refusal;
  size_t some;
  (void)state;
  memset(text, '0', sizeof text);
  chunks_take(&(struct chunks){0}, text, sizeof text, &some, &refusal);
  assert_int_equal(refusal.status, 400);
  memset(text, 'a', sizeof text);
  memcpy(text, "0\r\n", 3);
  chunks_take(&(struct chunks){0}, text, sizeof text, &some, &refusal);
  assert_int_equal(refusal.status, 400);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_heads),   cmocka_unit_test(test_parts_of_a_head),
      cmocka_unit_test(test_targets), cmocka_unit_test(test_unfinished_lines),
      cmocka_unit_test(test_chunks),  cmocka_unit_test(test_long_lines_of_chunks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
