// HTTP for a server, by libmicrohttpd, which serves within http_run: no thread is started.
#include "text_http.h"

#ifdef TPGEN_HTTP
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "text_jobs.h"

enum {
  MOST_CONNECTIONS = 256,
  MOST_HEADERS = 16 << 10,
  SECONDS = 30, // that a request may take to come, and a client may be silent
};

// A connection.
struct peer {
  int fd;
  double since; // it waits for a request
  bool asked;   // a request has come whole, and is not yet answered
  struct peer *next, **from;
};

struct call {
  struct MHD_Connection *connection;
  struct peer *peer;
  struct bytes body, out; // of events: what is not yet sent
  size_t dropped;         // bytes beyond the limit
  struct MHD_Response *response;
  unsigned status;
  void *of;
  bool taken;     // it has come whole
  bool queued;    // its answer goes out
  bool suspended; // until there is something to send
  bool is_events, ended, gone;
  struct call *next, **from;
};

static struct {
  const struct http *how;
  struct MHD_Daemon *daemon;
  struct peer *peers;
  struct call *calls;
  double looked;
} http;

// ---- answers -----------------------------------------------------------------------------------

static void wake(struct call *c)
{
  if (!c->suspended) return;
  c->suspended = false;
  MHD_resume_connection(c->connection);
}

void call_is_of(struct call *call, void *of)
{
  call->of = of;
}

void call_answer(struct call *c, unsigned status, char *text)
{
  static const char lacks_memory[] =
      "{\"error\":{\"message\":\"out of "
      "memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
  c->status = text ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
  c->response = text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
                     : MHD_create_response_from_buffer(
                           sizeof lacks_memory - 1, (void *)lacks_memory, MHD_RESPMEM_PERSISTENT);
  if (c->response) MHD_add_response_header(c->response, "Content-Type", "application/json");
  if (c->response && status == MHD_HTTP_UNAUTHORIZED)
    MHD_add_response_header(c->response, "WWW-Authenticate", "Bearer");
  c->gone |= !c->response;
  c->ended = true;
  c->of = NULL;
  wake(c);
}

void call_refuse(struct call *c, unsigned status, const char *type, const char *param,
                 const char *message)
{
  struct bytes valid = {0}; // parts of a request may be in the message
  add_bytes(&valid, "", 0);
  add_lossy(&valid, message, strlen(message));
  json_t *text = json_stringn(valid.count ? valid.at : "", valid.count);
  json_t *object =
      json_pack("{s{sossss?ss?}}", "error", "message", text, "type", type, "param", param, "code",
                status == MHD_HTTP_UNAUTHORIZED ? "invalid_api_key" : NULL);
  call_answer(c, status, object ? json_dumps(object, JSON_COMPACT) : NULL);
  json_decref(object);
  free_bytes(&valid);
}

// The next bytes of an answer by events.
static ssize_t next_events(void *of, uint64_t at, char *to, size_t most)
{
  struct call *c = of;
  (void)at;
  const size_t count = c->out.count < most ? c->out.count : most;
  if (c->gone || c->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
  if (count == 0 && c->ended) return MHD_CONTENT_READER_END_OF_STREAM;
  if (count == 0) {
    c->suspended = true;
    MHD_suspend_connection(c->connection);
    return 0;
  }
  memcpy(to, c->out.at, count);
  c->out.count -= count;
  memmove(c->out.at, c->out.at + count, c->out.count);
  return (ssize_t)count;
}

void call_events(struct call *c)
{
  enum { BLOCK = 4096 };
  c->status = MHD_HTTP_OK;
  c->is_events = true;
  c->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, next_events, c, NULL);
  if (c->response) {
    MHD_add_response_header(c->response, "Content-Type", "text/event-stream; charset=utf-8");
    MHD_add_response_header(c->response, "Cache-Control", "no-cache");
  }
  c->gone |= !c->response;
  wake(c);
}

void call_event(struct call *c, const char *text)
{
  add_bytes(&c->out, "data: ", 6);
  add_bytes(&c->out, text, strlen(text));
  add_bytes(&c->out, "\n\n", 2);
  wake(c);
}

void call_end(struct call *c)
{
  c->ended = true;
  c->of = NULL;
  wake(c);
}

// ---- requests ----------------------------------------------------------------------------------

static struct call *begin_call(struct MHD_Connection *connection)
{
  struct call *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  c->connection = connection;
  c->peer = info ? info->socket_context : NULL;
  c->next = http.calls;
  c->from = &http.calls;
  if (c->next) c->next->from = &c->next;
  http.calls = c;
  return c;
}

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

// Whether a body of this length is refused before it comes. A client that does not wait for that
// sends it anyway, and would see a broken connection in the place of the answer: what is not far
// too large is read (take_body drops it).
static bool is_refused_at_once(struct call *c, unsigned long long length)
{
  const bool waits = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "Expect");
  return length > (waits ? MOST_BODY : 2ULL * MOST_BODY);
}

static void check_head(struct call *c, const char *url, const char *method)
{
  const char *given = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "Authorization"),
             *length =
                 MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "Content-Length"),
             *type = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "Content-Type");
  if (http.how->token && strcmp(url, "/health") != 0 && !is_token(given))
    call_refuse(c, MHD_HTTP_UNAUTHORIZED, "invalid_request_error", NULL,
                "this server wants its token: Authorization: Bearer TOKEN");
  else if (length && is_refused_at_once(c, strtoull(length, NULL, 10)))
    call_refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, "invalid_request_error", NULL,
                "the body is too large");
  else if (strcmp(method, "POST") == 0 && (!type || strncasecmp(type, "application/json", 16) != 0))
    call_refuse(c, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", NULL,
                "the body is to be JSON: Content-Type: application/json");
}

static void take_body(struct call *c, const char *data, size_t count)
{
  const size_t room = MOST_BODY - c->body.count, some = count < room ? count : room;
  add_bytes(&c->body, data, some);
  c->dropped += count - some;
  if (c->dropped > MOST_BODY && c->peer) shutdown(c->peer->fd, SHUT_RDWR);
}

static void take_call(struct call *c, const char *url, const char *method)
{
  c->taken = true;
  if (c->peer) c->peer->asked = true;
  if (c->dropped > 0)
    call_refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, "invalid_request_error", NULL,
                "the body is too large");
  else if (c->body.failed)
    call_answer(c, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL);
  else
    http.how->take(c, method, url, c->body.at ? c->body.at : "", c->body.count);
  free_bytes(&c->body);
}

static enum MHD_Result answer(struct call *c)
{
  if (c->gone) return MHD_NO;
  if (!c->response) {
    c->suspended = true;
    MHD_suspend_connection(c->connection);
    return MHD_YES;
  }
  c->queued = true;
  if (c->peer) c->peer->asked = true;
  return MHD_queue_response(c->connection, c->status, c->response);
}

static enum MHD_Result on_request(void *unused, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *count, void **of)
{
  struct call *c = *of;
  (void)unused;
  (void)version;
  if (!c) {
    *of = c = begin_call(connection);
    if (!c) return MHD_NO;
    check_head(c, url, method);
    return c->response ? answer(c) : MHD_YES;
  }
  if (*count > 0) {
    take_body(c, data, *count);
    *count = 0;
    return MHD_YES;
  }
  if (c->queued) return MHD_YES;
  if (!c->taken) take_call(c, url, method);
  return answer(c);
}

// The answer is sent, or cannot be.
static void on_completed(void *unused, struct MHD_Connection *connection, void **of,
                         enum MHD_RequestTerminationCode why)
{
  struct call *c = *of;
  (void)unused;
  (void)connection;
  (void)why;
  if (!c) return;
  if (c->of) http.how->gone(c->of);
  if (c->response) MHD_destroy_response(c->response);
  if (c->peer) {
    c->peer->asked = false;
    c->peer->since = seconds_now();
  }
  *c->from = c->next;
  if (c->next) c->next->from = c->from;
  free_bytes(&c->body);
  free_bytes(&c->out);
  free(c);
  *of = NULL;
}

// ---- connections -------------------------------------------------------------------------------

static void on_connection(void *unused, struct MHD_Connection *connection, void **of,
                          enum MHD_ConnectionNotificationCode what)
{
  struct peer *p = *of;
  (void)unused;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    p = info ? calloc(1, sizeof *p) : NULL;
    if (!p) return;
    *p = (struct peer){
        .fd = info->connect_fd, .since = seconds_now(), .next = http.peers, .from = &http.peers};
    if (p->next) p->next->from = &p->next;
    http.peers = p;
    *of = p;
  } else if (p) {
    *p->from = p->next;
    if (p->next) p->next->from = p->from;
    free(p);
    *of = NULL;
  }
}

// Ends connections whose request takes too long to come.
static void end_slow(void)
{
  const double now = seconds_now();
  for (struct peer *p = http.peers; p; p = p->next)
    if (!p->asked && now - p->since > SECONDS) shutdown(p->fd, SHUT_RDWR);
}

// Nobody looks whether the client of a suspended connection is there.
static void find_gone(void)
{
  char byte;
  for (struct call *c = http.calls, *next; c; c = next) {
    next = c->next;
    if (!c->suspended || !c->peer) continue;
    const ssize_t n = recv(c->peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) continue;
    if (c->of) http.how->gone(c->of);
    c->of = NULL;
    c->gone = true;
    wake(c);
  }
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

// By select: with epoll libmicrohttpd 0.9.75 overlooks that a client has closed its side together
// with its last bytes.
bool http_open(const struct http *h, struct failure *why)
{
  struct addrinfo *address = address_of(h, why);
  if (!address) return false;
  http.how = h;
  errno = 0;
  http.daemon = MHD_start_daemon(
      MHD_ALLOW_SUSPEND_RESUME | (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0),
      (uint16_t)h->port, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, address->ai_addr,
      MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
      NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
      (unsigned)SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MOST_HEADERS, MHD_OPTION_END);
  const int error = errno;
  freeaddrinfo(address);
  return http.daemon || failed(why, "port %d of %s cannot be opened: %s", h->port, h->host,
                               error ? strerror(error) : "libmicrohttpd does not start");
}

void http_run(int milliseconds)
{
  MHD_run_wait(http.daemon, milliseconds);
  find_gone();
  if (seconds_now() - http.looked < 1) return;
  http.looked = seconds_now();
  end_slow();
}

void http_hush(void)
{
  const MHD_socket listens = MHD_quiesce_daemon(http.daemon);
  if (listens != MHD_INVALID_SOCKET) close(listens);
}

bool http_is_busy(void)
{
  return http.calls != NULL;
}

void http_close(void)
{
  // A daemon with suspended connections does not stop.
  for (struct call *c = http.calls; c; c = c->next) {
    c->of = NULL;
    c->gone = true;
    wake(c);
  }
  if (!http.daemon) return;
  MHD_run_wait(http.daemon, 0);
  MHD_stop_daemon(http.daemon);
  http.daemon = NULL;
}
#endif
