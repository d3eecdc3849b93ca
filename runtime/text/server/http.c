// SPDX-License-Identifier: MIT
// HTTP for a server, within http_run: no thread is started. A connection has one request at a time;
// those that follow wait in its input.
#include "text/server/http.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "text/chat/slots.h"
#include "text/server/head.h"

enum {
  MOST_CONNECTIONS = 256,
  SECONDS = 30, // that a request may take to come, and a client may be silent
  LINGER = 2,   // seconds for a client to read the last answer
  BLOCK = 16 << 10,
};
static const double PROBE = 0.5; // seconds between two checks of whether a client is connected

// A connection, and its request.
struct call {
  int fd;
  enum { HEAD, BODY, ASKED, ANSWERED, LINGERS } stage;
  double since;         // it waits for a request, or has moved
  bool knows_token;     // it has sent the token
  bool half_closed;     // the client sends nothing more
  bool gone;            // and takes nothing more
  bool closes;          // after this answer
  struct bytes in, out; // received and not yet read; not yet sent
  size_t sent;          // of `out`
  // The request.
  struct bytes head_text, body;
  struct head head;
  struct chunks chunks;
  size_t left, dropped; // of the body: bytes to come; bytes beyond the limit
  // Its answer.
  void *of;
  bool in_chunks, has_head, is_events;
  double probed;
  struct call *next, **from;
};

static struct {
  const struct http *how;
  int listens, connections;
  struct call *calls;
  double rests_until; // takes no connections: the process has no more descriptors
} http = {.listens = -1};

// ---- answers -----------------------------------------------------------------------------------

void call_is_of(struct call *call, void *of)
{
  call->of = of;
}

static void put(struct call *c, const char *text)
{
  add_bytes(&c->out, text, strlen(text));
}

static const char *name_of(unsigned status)
{
  static const struct {
    unsigned status;
    const char *name;
  } names[] = {{200, "OK"},
               {400, "Bad Request"},
               {401, "Unauthorized"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {413, "Content Too Large"},
               {415, "Unsupported Media Type"},
               {417, "Expectation Failed"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {501, "Not Implemented"},
               {503, "Service Unavailable"},
               {505, "HTTP Version Not Supported"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].status == status) return names[i].name;
  return "Error";
}

// length: of the body; -1: it is not known.
static void put_head(struct call *c, unsigned status, const char *type, long length)
{
  char text[256];
  const time_t seconds = time(NULL);
  struct tm parts;
  snprintf(text, sizeof text, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\n", status, name_of(status),
           type);
  put(c, text);
  if (gmtime_r(&seconds, &parts)) {
    strftime(text, sizeof text, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
    put(c, text);
  }
  if (status == HTTP_UNAUTHORIZED) put(c, "WWW-Authenticate: Bearer\r\n");
  c->in_chunks = length < 0 && !c->head.is_1_0;
  c->closes |= length < 0 && c->head.is_1_0;
  snprintf(text, sizeof text, "Content-Length: %ld\r\n", length);
  if (length >= 0) put(c, text);
  if (c->in_chunks) put(c, "Transfer-Encoding: chunked\r\n");
  put(c, c->closes ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
  c->has_head = true;
}

static bool wants_body(const struct call *c)
{
  return !c->head.method || strcmp(c->head.method, "HEAD") != 0;
}

// Bytes of an answer whose length was not known.
static void put_part(struct call *c, const char *text, size_t count)
{
  char size[24];
  if (count == 0 || !wants_body(c)) return;
  snprintf(size, sizeof size, "%zx\r\n", count);
  if (c->in_chunks) put(c, size);
  add_bytes(&c->out, text, count);
  if (c->in_chunks) put(c, "\r\n");
}

static void end_answer(struct call *c)
{
  if (c->in_chunks && wants_body(c)) put(c, "0\r\n\r\n");
  c->of = NULL;
  c->stage = ANSWERED;
}

void call_answer(struct call *c, unsigned status, char *text)
{
  static const char lacks_memory[] =
      "{\"error\":{\"message\":\"out of "
      "memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
  const char *body = text ? text : lacks_memory;
  if (!text) status = HTTP_INTERNAL_SERVER_ERROR;
  if (!c->has_head) {
    put_head(c, status, "application/json", (long)strlen(body));
    if (wants_body(c)) put(c, body);
  } else if (status == HTTP_OK) {
    put_part(c, body, strlen(body));
  } else {
    c->gone = true; // it was told 200: a broken connection is the nearest to the truth
  }
  end_answer(c);
  free(text);
}

void call_refuse(struct call *c, unsigned status, const char *type, const char *param,
                 const char *message)
{
  struct bytes valid = {0}; // parts of a request may be in the message
  add_bytes(&valid, "", 0);
  add_lossy(&valid, message, strlen(message));
  json_t *text = json_stringn(valid.count ? valid.at : "", valid.count);
  json_t *object = json_pack("{s{sossss?ss?}}", "error", "message", text, "type", type, "param",
                             param, "code", status == HTTP_UNAUTHORIZED ? "invalid_api_key" : NULL);
  call_answer(c, status, object ? json_dumps(object, JSON_COMPACT) : NULL);
  json_decref(object);
  free_bytes(&valid);
}

void call_events(struct call *c)
{
  c->is_events = true;
  put_head(c, HTTP_OK, "text/event-stream; charset=utf-8\r\nCache-Control: no-cache", -1);
}

void call_event(struct call *c, const char *text)
{
  struct bytes event = {0};
  add_bytes(&event, "data: ", 6);
  add_bytes(&event, text, strlen(text));
  add_bytes(&event, "\n\n", 2);
  if (event.failed)
    c->out.failed = true;
  else
    put_part(c, event.at, event.count);
  free_bytes(&event);
}

void call_end(struct call *c)
{
  end_answer(c);
}

// A client that sends nothing more may wait for its answer, or be gone: that shows if something is
// sent to it. JSON may begin with white space.
static void probe(struct call *c)
{
  if (c->stage != ASKED || !c->half_closed || c->is_events || seconds_now() - c->probed < PROBE)
    return;
  c->closes = true;
  if (!c->has_head) put_head(c, HTTP_OK, "application/json", -1);
  put_part(c, " ", 1);
  c->probed = seconds_now();
}

// ---- requests ----------------------------------------------------------------------------------

// Takes as long for each wrong token.
static bool is_token(const char *given)
{
  static const char scheme[] = "Bearer ";
  if (!given || strncasecmp(given, scheme, sizeof scheme - 1) != 0) return false;
  given += sizeof scheme - 1;
  const size_t count = strlen(given), expected = strlen(http.how->token);
  volatile unsigned char differs = count != expected;
  for (size_t i = 0; i < expected; i++)
    differs |= (unsigned char)(given[i % (count + 1)] ^ http.how->token[i]);
  return !differs;
}

// An answer to a request that is not read any further.
static void refuse_at_once(struct call *c, unsigned status, const char *message)
{
  c->closes = true;
  call_refuse(c, status, "invalid_request_error", NULL, message);
}

// Whether a body of this length is refused before it comes. A client that does not wait for that
// sends it anyway: a body that is not far too large is read (take_body drops it).
static bool is_refused_at_once(const struct head *h)
{
  return h->length > (h->waits ? MOST_BODY : 2ULL * MOST_BODY);
}

// "application/json", perhaps with parameters.
static bool is_json(const char *type)
{
  static const char json[] = "application/json";
  return type && strncasecmp(type, json, sizeof json - 1) == 0 &&
         strchr("; \t", type[sizeof json - 1]);
}

static void begin_body(struct call *c)
{
  const struct head *h = &c->head;
  c->closes |= h->closes;
  c->stage = BODY;
  c->left = (size_t)h->length;
  if (http.how->token && is_token(h->authorization)) c->knows_token = true;
  if (http.how->token && strcmp(h->path, "/health") != 0 && !is_token(h->authorization)) {
    c->closes |= h->has_body;
    call_refuse(c, HTTP_UNAUTHORIZED, "invalid_request_error", NULL,
                "this server wants its token: Authorization: Bearer TOKEN");
  } else if (is_refused_at_once(h)) {
    refuse_at_once(c, HTTP_CONTENT_TOO_LARGE, "the body is too large");
  } else if (strcmp(h->method, "POST") == 0 && !is_json(h->content_type)) {
    c->closes |= h->has_body;
    call_refuse(c, HTTP_UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", NULL,
                "the body is to be JSON: Content-Type: application/json");
  } else if (h->waits && c->in.count == 0) {
    put(c, "HTTP/1.1 100 Continue\r\n\r\n");
  }
}

// Bytes of the input are taken.
static void drop_input(struct call *c, size_t count)
{
  c->in.count -= count;
  if (count > 0) memmove(c->in.at, c->in.at + count, c->in.count);
}

// True if it has gone a step on.
static bool take_head(struct call *c)
{
  size_t count = head_length(c->in.at, c->in.count);
  if (head_is_broken(c->in.at, count ? count : c->in.count)) {
    refuse_at_once(c, HTTP_BAD_REQUEST,
                   "the head of the request has a control character, or a line that does "
                   "not end with CR and LF");
    return true;
  }
  if (count > MOST_HEAD || (count == 0 && c->in.count >= MOST_HEAD)) {
    refuse_at_once(c, HTTP_HEAD_TOO_LARGE, "the head of the request is too large");
    return true;
  }
  if (count == 0) return false;
  free_bytes(&c->head_text);
  add_bytes(&c->head_text, c->in.at, count);
  drop_input(c, count);
  if (c->head_text.failed) {
    c->gone = true;
    return false;
  }
  const struct refusal refusal = head_read(&c->head, c->head_text.at, count);
  if (refusal.status) {
    c->head.method = NULL; // it is no HEAD
    refuse_at_once(c, refusal.status, refusal.why);
  } else {
    begin_body(c);
  }
  return true;
}

static void take_whole(struct call *c)
{
  c->stage = ASKED;
  c->probed = seconds_now();
  if (c->dropped > 0)
    call_refuse(c, HTTP_CONTENT_TOO_LARGE, "invalid_request_error", NULL, "the body is too large");
  else if (c->body.failed)
    call_answer(c, HTTP_INTERNAL_SERVER_ERROR, NULL);
  else
    http.how->take(c, c->head.method, c->head.path, c->body.at ? c->body.at : "", c->body.count);
  free_bytes(&c->body);
}

static bool take_body(struct call *c)
{
  struct refusal refusal = {0};
  size_t some = c->in.count, taken;
  if (c->head.is_chunked) {
    taken = chunks_take(&c->chunks, c->in.at, c->in.count, &some, &refusal);
  } else {
    taken = some = some < c->left ? some : c->left;
    c->left -= taken;
  }
  const size_t room = MOST_BODY - c->body.count, kept = some < room ? some : room;
  if (kept > 0) add_bytes(&c->body, c->in.at, kept);
  c->dropped += some - kept;
  drop_input(c, taken);
  if (refusal.status)
    refuse_at_once(c, refusal.status, refusal.why);
  else if (c->dropped > MOST_BODY)
    refuse_at_once(c, HTTP_CONTENT_TOO_LARGE, "the body is too large");
  else if (c->head.is_chunked ? c->chunks.ended : c->left == 0)
    take_whole(c);
  else
    return taken > 0;
  return true;
}

static void read_input(struct call *c)
{
  for (bool moves = true; moves && !c->gone;)
    moves =
        (c->stage == HEAD && c->in.count > 0 && take_head(c)) || (c->stage == BODY && take_body(c));
  // The rest of a request does not come any more.
  if (c->half_closed && (c->stage == HEAD || c->stage == BODY)) c->gone = true;
}

// ---- connections -------------------------------------------------------------------------------

static void add_connection(int fd)
{
  const int yes = 1;
  struct call *c = calloc(1, sizeof *c);
  if (!c) {
    close(fd);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  *c = (struct call){.fd = fd, .since = seconds_now(), .next = http.calls, .from = &http.calls};
  if (c->next) c->next->from = &c->next;
  http.calls = c;
  http.connections++;
}

static void end_connection(struct call *c)
{
  if (c->of) http.how->gone(c->of);
  close(c->fd);
  *c->from = c->next;
  if (c->next) c->next->from = c->from;
  free_bytes(&c->in);
  free_bytes(&c->out);
  free_bytes(&c->head_text);
  free_bytes(&c->body);
  free(c);
  http.connections--;
}

// Whether a silent connection makes room for a new one. Those without the token go first, and then
// the one that has been silent for longest.
static bool make_room(void)
{
  enum { SHORT = 5 }; // seconds for a client to take its answer
  struct call *oldest = NULL;
  for (struct call *c = http.calls; c; c = c->next) {
    if (c->stage == ASKED || (c->stage == ANSWERED && seconds_now() - c->since < SHORT)) continue;
    if (!oldest || c->knows_token < oldest->knows_token ||
        (c->knows_token == oldest->knows_token && c->since < oldest->since))
      oldest = c;
  }
  if (oldest) end_connection(oldest);
  return oldest != NULL;
}

static void take_connections(void)
{
  enum { AT_ONCE = 64 };
  for (int i = 0; i < AT_ONCE; i++) {
    if (http.connections == MOST_CONNECTIONS && !make_room()) return;
    const int fd = accept4(http.listens, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      add_connection(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!make_room()) http.rests_until = seconds_now() + 0.2;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

static void receive(struct call *c)
{
  enum { BLOCKS = 16 };
  char some[BLOCK];
  ssize_t n = BLOCK;
  if (c->stage == HEAD && c->in.count == 0) c->since = seconds_now(); // its time begins
  for (int i = 0; n == BLOCK && i < (c->stage == BODY ? BLOCKS : 1); i++) {
    n = recv(c->fd, some, sizeof some, 0);
    if (n > 0 && c->stage != LINGERS) add_bytes(&c->in, some, (size_t)n);
  }
  if (n == 0) c->half_closed = true;
  if (n < 0 && errno != EAGAIN && errno != EINTR) c->gone = true;
  c->gone |= c->in.failed || (c->stage == LINGERS && n == 0);
}

// After an answer: the next request, or the end.
static void begin_anew(struct call *c)
{
  if (c->closes || (c->half_closed && c->in.count == 0)) {
    c->stage = LINGERS;
    shutdown(c->fd, SHUT_WR);
    if (c->half_closed) c->gone = true;
    return;
  }
  c->stage = HEAD;
  c->head = (struct head){0};
  c->chunks = (struct chunks){0};
  c->left = c->dropped = 0;
  c->in_chunks = c->has_head = c->is_events = false;
}

static void send_some(struct call *c)
{
  while (c->sent < c->out.count && !c->gone) {
    const ssize_t n =
        send(c->fd, c->out.at + c->sent, c->out.count - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) c->gone = true;
    if (n <= 0) break;
    c->sent += (size_t)n;
    c->since = seconds_now();
  }
  if (c->sent == c->out.count && c->sent > 0) {
    c->sent = c->out.count = 0;
    if (c->out.room > BLOCK) free_bytes(&c->out);
  } else if (c->sent > BLOCK) {
    c->out.count -= c->sent;
    memmove(c->out.at, c->out.at + c->sent, c->out.count);
    c->sent = 0;
  }
  c->gone |= c->out.failed;
}

// Goes on as far as it can: several requests may have come at once.
static void go_on(struct call *c)
{
  for (bool again = true; again && !c->gone;) {
    again = false;
    read_input(c);
    probe(c);
    send_some(c);
    if (c->stage == ANSWERED && c->out.count == 0 && !c->gone) {
      c->since = seconds_now();
      begin_anew(c);
      again = c->stage == HEAD && c->in.count > 0;
    }
  }
}

// A request that takes too long to come, or a client that does not read.
static bool is_slow(const struct call *c, double now)
{
  if (c->stage == LINGERS) return now - c->since > LINGER;
  if (c->stage == ASKED && c->out.count == 0) return false;
  return now - c->since > SECONDS;
}

// ---- the server --------------------------------------------------------------------------------

static struct addrinfo *address_of(const struct http *h, struct failure *why)
{
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  struct addrinfo *found = NULL;
  char port[16];
  snprintf(port, sizeof port, "%d", h->port);
  const int wrong = getaddrinfo(h->host, port, &hints, &found);
  if (wrong) failed(why, "--host %s: %s", h->host, gai_strerror(wrong));
  return wrong ? NULL : found;
}

static int listen_at(const struct addrinfo *address)
{
  const int yes = 1;
  const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
    return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

bool http_open(const struct http *h, struct failure *why)
{
  struct addrinfo *address = address_of(h, why);
  if (!address) return false;
  http.how = h;
  http.listens = listen_at(address);
  const int error = errno;
  freeaddrinfo(address);
  return http.listens >= 0 ||
         failed(why, "port %d of %s cannot be opened: %s", h->port, h->host, strerror(error));
}

// The events to await on a connection. While an answer is made, a little of the next request is
// read, so that the end of a client shows.
static short events_of(const struct call *c)
{
  const bool reads =
      c->stage == HEAD || c->stage == BODY || c->stage == LINGERS || c->in.count < MOST_HEAD;
  return (short)((reads && !c->half_closed ? POLLIN : 0) | (c->out.count > 0 ? POLLOUT : 0));
}

void http_run(int milliseconds)
{
  static struct pollfd wait[MOST_CONNECTIONS + 1];
  static struct call *of[MOST_CONNECTIONS + 1];
  nfds_t n = 0;
  for (struct call *c = http.calls, *next; c; c = next) {
    next = c->next;
    if (c->stage == ASKED || c->stage == ANSWERED) go_on(c); // what was answered meanwhile
    if (c->gone) {
      end_connection(c);
      continue;
    }
    wait[n] = (struct pollfd){.fd = c->fd, .events = events_of(c)};
    of[n++] = c;
  }
  const nfds_t connections = n;
  if (http.listens >= 0 && seconds_now() >= http.rests_until)
    wait[n++] = (struct pollfd){.fd = http.listens, .events = POLLIN};
  if (poll(wait, n, milliseconds) < 0) return;
  for (nfds_t i = 0; i < connections; i++) {
    struct call *c = of[i];
    if (wait[i].revents & (POLLERR | POLLHUP | POLLNVAL) && !(wait[i].revents & POLLIN))
      c->gone = true;
    if (wait[i].revents & POLLIN) receive(c);
    if (wait[i].revents) go_on(c);
    if (c->gone || is_slow(c, seconds_now())) end_connection(c);
  }
  if (n > connections && wait[connections].revents) take_connections();
}

void http_hush(void)
{
  if (http.listens >= 0) close(http.listens);
  http.listens = -1;
}

bool http_is_busy(void)
{
  for (struct call *c = http.calls; c; c = c->next)
    if (c->stage == ASKED || c->stage == ANSWERED || c->stage == LINGERS) return true;
  return false;
}

void http_close(void)
{
  http_hush();
  while (http.calls) {
    http.calls->of = NULL;
    end_connection(http.calls);
  }
}
