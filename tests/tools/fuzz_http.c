// Clients of a program that serves, for serve.sh and serve_faults.sh.
//
//   fuzz_http requests PORT COUNT TOKEN TEXT   so many requests: good ones, mutants of bytes and of
//                                              values, bodies in chunks that are framed wrongly,
//                                              cut ones, slow ones, huge ones, bytes. Each must be
//                                              answered, or its connection closed, within some
//                                              seconds; every 50th is a good one, of which the
//                                              answer must be TEXT.
//                                              Prints how many had which status
//   fuzz_http hold PORT BODY TOKEN             asks /v1/completions again and again, until it is
//                                              killed
//   fuzz_http raw PORT whole|half|slow         sends its input, and prints the statuses of what is
//                                              answered and whether the connection is "closed" then
//                                              or "open". half: closes its side after it. slow: by
//                                              a byte at a time
//   fuzz_http silent PORT COUNT                so many connections that say nothing, until it is
//                                              killed
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "json_mutants.h"
#include "splitmix64.h"

enum { SLOW = 12, PATIENCE = 30000, MOST = 1 << 16 };

static int port;
static const char *token;
static uint64_t state;
static long request;     // its number
static long statuses[7]; // by their first digit; 0: none
static int slow[SLOW];   // connections that send a byte now and then

static uint64_t draw(uint64_t below)
{
  return splitmix64(&state) % below;
}

static int connected(void)
{
  const struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
    fprintf(stderr, "no connection: %s\n", strerror(errno));
    exit(1);
  }
  return fd;
}

// False: the other side has closed it.
static bool send_all(int fd, const char *bytes, size_t count)
{
  while (count > 0) {
    const ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes += n;
    count -= (size_t)n;
  }
  return true;
}

// Reads until the other side closes, or `most` bytes; ends the program if that takes too long.
static size_t receive(int fd, char *to, size_t most)
{
  size_t count = 0;
  struct pollfd in = {.fd = fd, .events = POLLIN};
  while (count < most) {
    if (poll(&in, 1, PATIENCE) <= 0) {
      fprintf(stderr, "request %ld: no answer in %d s\n", request, PATIENCE / 1000);
      exit(1);
    }
    const ssize_t n = recv(fd, to + count, most - count, 0);
    if (n <= 0) break;
    count += (size_t)n;
  }
  return count;
}

static size_t write_request(char *to, const char *path, const char *body, size_t count)
{
  const int head =
      snprintf(to, MOST,
               "POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
               path, token, count);
  memcpy(to + head, body, count);
  return (size_t)head + count;
}

static const char *const bodies[] = {
    "{\"prompt\": \"Hello\", \"max_tokens\": 3}",
    "{\"prompt\": \"Hello\", \"max_tokens\": 5, \"stream\": true, \"stop\": [\"a\", \"b\"]}",
    "{\"prompt\": [1, 2, 3], \"max_tokens\": 2, \"temperature\": 1.5, \"top_p\": 0.5, \"seed\": 3}",
    "{\"prompt\": [\"Hello\", [1, 2]], \"max_tokens\": 2, \"logprobs\": 2, \"echo\": true}",
    "{\"prompt\": \"Hello\", \"n\": 3, \"max_tokens\": 0, \"logprobs\": 0, \"echo\": true, "
    "\"stream\": true}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"max_tokens\": 3, \"stream\": "
    "true, \"logprobs\": true, \"top_logprobs\": 3, \"n\": 2}",
    "{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": "
    "\"x\"}]}], \"max_tokens\": 3}"};

static size_t write_some(char *to)
{
  const char *body = bodies[draw(sizeof bodies / sizeof *bodies)];
  return write_request(to, strstr(body, "messages") ? "/v1/chat/completions" : "/v1/completions",
                       body, strlen(body));
}

// Changes bytes, takes some out, or doubles some.
static size_t mutate(char *text, size_t count, size_t from)
{
  for (uint64_t i = 0, n = 1 + draw(6); i < n && count > from + 1; i++) {
    const size_t at = from + draw(count - from), some = 1 + draw(count - at);
    switch (draw(4)) {
    case 0:
      text[at] = (char)draw(256);
      break;
    case 1:
      memmove(text + at, text + at + some, count - at - some);
      count -= some;
      break;
    case 2:
      if (count + some > MOST / 2) break;
      memmove(text + at + some, text + at, count - at);
      count += some;
      break;
    default:
      text[at] = "\"{}[],:\\0\xff\r\n"[draw(13)];
    }
  }
  return count;
}

// A body in which values are of other types, huge, deep, or no UTF-8.
static size_t write_values(char *to)
{
  static const char *const values[] = {"\"prompt\"",
                                       "\"stream\"",
                                       "{\"role\": \"user\", \"content\": \"x\"}",
                                       "\"messages\"",
                                       "\"user\"",
                                       "[\"x\", 1, null, []]",
                                       "\"\xff\xfe\"",
                                       "\"\xed\xa0\x80\"",
                                       "\"\\ud800\"",
                                       "\"\xf0\x9f\x98\"",
                                       "[[1], [2], [3]]",
                                       "\"{{ messages }}\"",
                                       "-1e400",
                                       "0.1e-400",
                                       "1e-5",
                                       "2147483647",
                                       "18446744073709551615",
                                       "{\"type\": \"text\", \"text\": 1}"};
  static char body[MOST_TEXT];
  const char *original = bodies[draw(sizeof bodies / sizeof *bodies)];
  size_t count = strlen(original);
  memcpy(body, original, count);
  begin_mutant((uint64_t)request);
  change_json(body, &count, values, sizeof values / sizeof *values);
  if (count > MOST / 2) count = MOST / 2;
  return write_request(
      to, strstr(original, "messages") ? "/v1/chat/completions" : "/v1/completions", body, count);
}

// A body in chunks, one of which may have another length than it says.
static size_t write_chunks(char *to)
{
  static const char *const sizes[] = {"-1",
                                      "0x4",
                                      "ffffffffffffffff",
                                      "10000000000000000",
                                      "7fffffff",
                                      "",
                                      " 4",
                                      "4 ",
                                      "00000000000000004",
                                      "g"};
  const char *body = bodies[draw(sizeof bodies / sizeof *bodies)];
  const size_t wrong = draw(2) ? draw(6) : 6;
  size_t left = strlen(body);
  size_t n =
      (size_t)snprintf(to, MOST,
                       "POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"
                       "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
                       token);
  for (size_t i = 0; left > 0; i++) {
    const size_t here = 1 + draw(left), said = i == wrong ? here + draw(5) - 2 : here;
    if (i == wrong && draw(2))
      n += (size_t)sprintf(to + n, "%s\r\n", sizes[draw(sizeof sizes / sizeof *sizes)]);
    else
      n += (size_t)sprintf(to + n, "%zx%s\r\n", said, draw(8) ? "" : "; a=\"b\"");
    memcpy(to + n, body, here);
    n += here;
    n += (size_t)sprintf(to + n, "%s", draw(32) ? "\r\n" : "\n");
    body += here;
    left -= here;
  }
  return n + (size_t)sprintf(to + n, "%s",
                             draw(8)   ? "0\r\n\r\n"
                             : draw(2) ? "0\r\nA: b\r\n\r\n"
                                       : "");
}

// One of the slow connections goes a byte on, or anew.
static void be_slow(void)
{
  static const char some[] =
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{\"prompt\": \"";
  static size_t sent[SLOW];
  const size_t i = draw(SLOW);
  if (slow[i] > 0 && sent[i] < sizeof some - 1 && send_all(slow[i], some + sent[i], 1)) {
    sent[i]++;
    return;
  }
  if (slow[i] > 0) close(slow[i]);
  slow[i] = connected();
  sent[i] = 0;
}

static void count_status(const char *answer, size_t count)
{
  if (count > 0 && (count < 12 || memcmp(answer, "HTTP/1.", 7) != 0)) {
    fprintf(stderr, "no answer of HTTP: %.*s\n", (int)count, answer);
    exit(1);
  }
  const int digit = count > 0 ? answer[9] - '0' : 0;
  statuses[digit >= 0 && digit < 6 ? digit : 6]++;
}

static void ask_once(void)
{
  // Of what is mutated it is not known where it ends: the client says so.
  static char text[MOST], answer[MOST];
  const int fd = connected();
  size_t count = write_some(text);
  const size_t head = (size_t)(strstr(text, "\r\n\r\n") - text) + 4;
  const uint64_t kind = draw(12);
  bool cuts = false;
  switch (kind) {
  case 0: // as it is
    break;
  case 1: // the body
    count = mutate(text, count, head);
    count = write_request(text, draw(2) ? "/v1/completions" : "/v1/chat/completions",
                          memcpy(answer, text + head, count - head), count - head);
    break;
  case 2: // all
    count = mutate(text, count, 0);
    break;
  case 3: // bytes
    count = 1 + draw(2000);
    for (size_t i = 0; i < count; i++) text[i] = (char)draw(256);
    break;
  case 4: // cut in the middle
    count = draw(count);
    cuts = true;
    break;
  case 5: // the client goes before the answer, or in it
    cuts = true;
    break;
  case 6: // more than it says, or two at once
    memcpy(text + count, text, count);
    count *= 2;
    break;
  case 7: // chunks
    count = write_chunks(text);
    break;
  case 8:
  case 9:
  case 10:
    count = write_values(text);
    break;
  default: // a huge body, which does not come
    count =
        (size_t)snprintf(text, MOST,
                         "POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"
                         "Content-Type: application/json\r\nContent-Length: %llu\r\n\r\n{",
                         token, (unsigned long long)draw(2) << (20 + draw(40)));
  }
  if (send_all(fd, text, count) && cuts) {
    if (kind == 5) receive(fd, answer, draw(2));
  } else {
    if (kind > 1 && kind != 6 && kind != 8) shutdown(fd, SHUT_WR);
    count_status(answer, receive(fd, answer, sizeof answer));
  }
  close(fd);
}

static void ask_well(const char *expected)
{
  static const char body[] = "{\"prompt\": \"Hello\", \"max_tokens\": 12, \"temperature\": 0}";
  static char text[MOST], answer[MOST + 1];
  char part[512];
  snprintf(part, sizeof part, "\"text\":\"%s\"", expected);
  for (int tries = 0; tries < 200; tries++) {
    const int fd = connected();
    send_all(fd, text, write_request(text, "/v1/completions", body, sizeof body - 1));
    answer[receive(fd, answer, MOST)] = 0;
    close(fd);
    if (strstr(answer, part)) return;
    if (!strstr(answer, "too many requests wait")) break;
    usleep(10000);
  }
  fprintf(stderr, "not %s:\n%s\n", part, answer);
  exit(1);
}

static _Noreturn void hold(const char *body)
{
  static char text[MOST], answer[MOST];
  for (;;) {
    const int fd = connected();
    if (send_all(fd, text, write_request(text, "/v1/completions", body, strlen(body))))
      receive(fd, answer, sizeof answer);
    close(fd);
  }
}

static int raw(const char *how)
{
  enum { SILENCE = 300, ANSWERS = 1 << 20 }; // milliseconds, bytes
  static char text[MOST], answers[ANSWERS + 1];
  const size_t count = fread(text, 1, MOST, stdin);
  const int fd = connected();
  struct pollfd in = {.fd = fd, .events = POLLIN};
  size_t got = 0;
  ssize_t n = 1;
  if (strcmp(how, "slow") == 0) {
    for (size_t i = 0; i < count && send_all(fd, text + i, 1); i++) usleep(200);
  } else {
    send_all(fd, text, count);
  }
  const bool half = strcmp(how, "half") == 0;
  if (half) shutdown(fd, SHUT_WR);
  while (n > 0 && got < ANSWERS && poll(&in, 1, got && !half ? SILENCE : PATIENCE) > 0) {
    n = recv(fd, answers + got, ANSWERS - got, 0);
    if (n > 0) got += (size_t)n;
  }
  for (const char *at = answers; (at = strstr(at, "HTTP/1.1 ")); at++) printf("%.3s ", at + 9);
  puts(n > 0 ? "open" : "closed");
  close(fd);
  return 0;
}

static _Noreturn void be_silent(int count)
{
  for (int i = 0; i < count; i++) connected();
  puts("connected");
  fflush(stdout);
  for (;;) pause();
}

int main(int argc, char **argv)
{
  if (argc < 4) return 2;
  port = atoi(argv[2]);
  if (strcmp(argv[1], "raw") == 0) return raw(argv[3]);
  if (strcmp(argv[1], "silent") == 0) be_silent(atoi(argv[3]));
  if (argc < 5) return 2;
  if (strcmp(argv[1], "hold") == 0) {
    token = argv[4];
    hold(argv[3]);
  }
  if (argc < 6) return 2;
  token = argv[4];
  const long count = atol(argv[3]);
  for (long i = 0; i < count; i++) {
    state = (uint64_t)i;
    request = i;
    if (i % 50 == 0) ask_well(argv[5]);
    if (i % 5 == 0) be_slow();
    ask_once();
  }
  ask_well(argv[5]);
  printf(
      "  %ld requests: %ld answered with 2xx, %ld with 4xx, %ld with 5xx, %ld connections closed\n",
      count, statuses[2], statuses[4], statuses[5], statuses[0]);
  return statuses[2] == 0 || statuses[4] == 0;
}
