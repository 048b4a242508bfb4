/* SPDX-License-Identifier: MIT */
#include "drivers/etcd_rpc.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/fd.h"

enum {
    FRAME = 5,                      /* bytes before each message */
    MESSAGE_MAX = 64 * 1024 * 1024, /* P10 */
    HEADERS_MAX = 8,
    ATTEMPT_MIN_MS = 100,
};

/* What gRPC's codes are called there. */
enum {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

/* ---- what libcurl calls ---- */

static curl_socket_t open_socket(void *arg, curlsocktype purpose,
                                 struct curl_sockaddr *address)
{
    struct pk_etcd_line *l = arg;
    (void)purpose;
    for (size_t i = 0; i < PK_ETCD_FDS_MAX && !l->warm; i++) {
        if (l->fds[i] < 0) {
            l->fds[i] = socket(address->family, address->socktype | SOCK_CLOEXEC,
                               address->protocol);
            return l->fds[i] < 0 ? CURL_SOCKET_BAD : l->fds[i];
        }
    }
    return CURL_SOCKET_BAD;
}

static int close_socket(void *arg, curl_socket_t fd)
{
    struct pk_etcd_line *l = arg;
    for (size_t i = 0; i < PK_ETCD_FDS_MAX; i++) {
        if (l->fds[i] == fd) {
            pk_fd_close(&l->fds[i]);
        }
    }
    return 0;
}

static size_t give_bytes(char *to, size_t size, size_t count, void *arg)
{
    struct pk_etcd_line *l = arg;
    size_t n = l->out.len - l->sent;
    if (n == 0 && l->open_end) {
        l->paused = true;
        return CURL_READFUNC_PAUSE;
    }
    l->begun += l->sent == 0 && n > 0 ? 1 : 0;
    n = n < size * count ? n : size * count;
    if (n > 0) {
        memcpy(to, l->out.data + l->sent, n);
    }
    l->sent += n;
    return n;
}

/* For a request that libcurl sends once more, because a connection kept from earlier
 * calls turned out to be dead. */
static int rewind_bytes(void *arg, curl_off_t offset, int origin)
{
    struct pk_etcd_line *l = arg;
    if (origin != SEEK_SET || offset != 0 || l->open_end) {
        return CURL_SEEKFUNC_FAIL;
    }
    l->sent = 0;
    return CURL_SEEKFUNC_OK;
}

static size_t take_bytes(char *from, size_t size, size_t count, void *arg)
{
    struct pk_etcd_line *l = arg;
    size_t n = size * count;
    if (l->in_len + n > l->in_capacity) {
        if (l->in_len + n > MESSAGE_MAX) {
            snprintf(l->trouble, sizeof l->trouble, "an answer of more than 64 MB");
            return 0;
        }
        l->in_capacity = 2 * (l->in_len + n);
        l->in = pk_door_resize(l->in, l->in_capacity);
    }
    memcpy(l->in + l->in_len, from, n);
    l->in_len += n;
    return n;
}

/* The value, if it is the header of that name. */
static bool header_is(struct pk_bytes line, const char *name, struct pk_bytes *value)
{
    size_t len = strlen(name);
    if (line.len <= len || strncasecmp(line.data, name, len) != 0 ||
        line.data[len] != ':') {
        return false;
    }
    const char *at = line.data + len + 1;
    const char *end = line.data + line.len;
    while (at < end && *at == ' ') {
        at++;
    }
    while (end > at && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ')) {
        end--;
    }
    *value = pk_bytes(at, (size_t)(end - at));
    return true;
}

/* Headers, and the trailers that bring the verdict. */
static size_t take_header(char *from, size_t size, size_t count, void *arg)
{
    struct pk_etcd_line *l = arg;
    struct pk_bytes line = pk_bytes(from, size * count);
    struct pk_bytes value;
    char digits[12];
    if (header_is(line, "content-type", &value)) {
        l->grpc = value.len >= 16 && memcmp(value.data, "application/grpc", 16) == 0;
    } else if (header_is(line, "grpc-status", &value) && value.len < sizeof digits) {
        memcpy(digits, value.data, value.len);
        digits[value.len] = '\0';
        l->code = strtol(digits, NULL, 10);
    } else if (header_is(line, "grpc-message", &value)) {
        snprintf(l->said, sizeof l->said, "%.*s", (int)value.len, value.data);
    }
    return size * count;
}

/* ---- a line ---- */

static void start_library(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static enum picket_status init_line(struct pk_etcd_line *l)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_library);
    *l = (struct pk_etcd_line){.code = -1};
    for (size_t i = 0; i < PK_ETCD_FDS_MAX; i++) {
        l->fds[i] = -1;
    }
    l->easy = curl_easy_init();
    return l->easy != NULL ? PICKET_OK
                           : pk_fail(PICKET_LIMIT, "libcurl can't be started");
}

static void free_line(struct pk_etcd_line *l)
{
    if (l->easy != NULL) {
        curl_easy_cleanup(l->easy);
    }
    curl_slist_free_all(l->headers);
    pk_pb_free(&l->out);
    (void)pk_door_resize(l->in, 0);
}

void pk_etcd_line_forked(struct pk_etcd_line *l)
{
    for (size_t i = 0; i < PK_ETCD_FDS_MAX; i++) {
        pk_fd_close(&l->fds[i]);
    }
}

static void frame(struct pk_etcd_line *l, const struct pk_pb_out *message)
{
    unsigned char head[FRAME] = {
        0, (unsigned char)(message->len >> 24), (unsigned char)(message->len >> 16),
        (unsigned char)(message->len >> 8), (unsigned char)message->len};
    size_t len = l->out.len + FRAME + message->len;
    if (len > l->out.capacity) {
        l->out.capacity = 2 * len;
        l->out.data = pk_door_resize(l->out.data, l->out.capacity);
    }
    memcpy(l->out.data + l->out.len, head, FRAME);
    if (message->len > 0) {
        memcpy(l->out.data + l->out.len + FRAME, message->data, message->len);
    }
    l->out.len = len;
}

/* The next whole message that has come. */
static bool unframe(struct pk_etcd_line *l, struct pk_bytes *out)
{
    const unsigned char *at = l->in + l->used;
    size_t n = l->in_len - l->used;
    if (n < FRAME || at[0] != 0) { /* 1: compressed, which we never asked for */
        return false;
    }
    size_t len = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
    if (len > n - FRAME) {
        return false;
    }
    *out = pk_bytes(at + FRAME, len);
    l->used += FRAME + len;
    return true;
}

static void add_header(struct pk_etcd_line *l, const char *text)
{
    struct curl_slist *more = curl_slist_append(l->headers, text);
    PK_ASSERT(more != NULL);
    l->headers = more;
}

/* What is the same for all that this line will ever do. */
static void set_up(struct pk_etcd_line *l)
{
    CURL *e = l->easy;
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* a resolver that hangs is left alone */
    curl_easy_setopt(e, CURLOPT_PROXY, "");
    curl_easy_setopt(e, CURLOPT_POST, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, l->error);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, l);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, l);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, give_bytes);
    curl_easy_setopt(e, CURLOPT_READDATA, l);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, rewind_bytes);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, l);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, l);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, l);
}

/* Gets it ready for a request to that place. */
static void address(struct pk_etcd_line *l, const struct pk_etcd_caller *c,
                    uint32_t place, const char *method)
{
    const struct pk_place *p = &c->site->places.list[place];
    char url[PK_HOST_MAX + 128];
    bool v6 = strchr(p->host, ':') != NULL;
    snprintf(url, sizeof url, "http://%s%s%s:%u/etcdserverpb.%s", v6 ? "[" : "", p->host,
             v6 ? "]" : "", (unsigned)p->port, method);
    curl_easy_setopt(l->easy, CURLOPT_URL, url);
    curl_slist_free_all(l->headers);
    l->headers = NULL;
    add_header(l, "content-type: application/grpc");
    add_header(l, "te: trailers");
    add_header(l, "accept:");
    /* A member that has lost the others says so at once, instead of waiting for them. */
    add_header(l, "hasleader: true");
    if (c->token != NULL) {
        char token[1024];
        snprintf(token, sizeof token, "token: %s", c->token);
        add_header(l, token);
    }
    l->out.len = l->sent = l->in_len = l->used = 0;
    l->begun = 0;
    l->paused = l->grpc = false;
    l->code = -1;
    l->said[0] = l->trouble[0] = l->error[0] = '\0';
}

/* libcurl 7.88 can't use a connection again that was made with "HTTP/2 as everybody
 * knows"; asked for HTTP/2 only, it can, but a new connection would begin with HTTP/1.
 * So it is asked so as long as there is a connection, and gets no new one then. */
static void set_warm(struct pk_etcd_line *l, bool warm)
{
    l->warm = warm;
    curl_easy_setopt(l->easy, CURLOPT_HTTP_VERSION,
                     warm ? (long)CURL_HTTP_VERSION_2_0
                          : (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
}

/* Says in `trouble` why there was no verdict. */
static void note_trouble(struct pk_etcd_line *l, CURLcode code)
{
    if (l->trouble[0] == '\0') {
        snprintf(l->trouble, sizeof l->trouble, "%s",
                 l->error[0] != '\0' ? l->error : curl_easy_strerror(code));
    }
}

/* ---- calls ---- */

enum picket_status pk_etcd_caller_init(struct pk_etcd_caller *c,
                                       const struct pk_etcd_site *site)
{
    *c = (struct pk_etcd_caller){.site = site};
    enum picket_status s = init_line(&c->line);
    if (s == PICKET_OK) {
        set_up(&c->line);
        c->at = (uint32_t)(pk_random() % site->places.count);
    }
    return s;
}

void pk_etcd_caller_free(struct pk_etcd_caller *c)
{
    free_line(&c->line);
    free(c->token);
    c->token = NULL;
}

bool pk_etcd_refused(const struct pk_etcd_caller *c, const char *text)
{
    return c->line.code > GRPC_OK && strstr(c->line.said, text) != NULL;
}

enum picket_status pk_etcd_fail_garbled(const struct pk_etcd_caller *c)
{
    return pk_fail(PICKET_STORE, "%s: %s does not answer as an etcd does", c->site->shown,
                   c->site->places.list[c->at].text);
}

/* The other side has answered, but not as HTTP/2 has it. */
static bool speaks_otherwise(const struct pk_etcd_line *l, CURLcode code)
{
    return code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY ||
           strstr(l->error, "HTTP/2") != NULL || strstr(l->error, "nghttp2") != NULL;
}

/* What an attempt without a verdict means for the call. */
static enum picket_status judge_silence(const struct pk_etcd_caller *c, uint32_t place,
                                        CURLcode code)
{
    const struct pk_etcd_line *l = &c->line;
    const char *where = c->site->places.list[place].text;
    if (code == CURLE_OK && !l->grpc) {
        return pk_fail(PICKET_STORE, "%s: %s is no etcd: it answers, but not as gRPC",
                       c->site->shown, where);
    }
    if (code != CURLE_OPERATION_TIMEDOUT && speaks_otherwise(l, code)) {
        return pk_fail(PICKET_STORE, "%s: %s is no etcd: it does not speak HTTP/2 (%s)",
                       c->site->shown, where, l->trouble);
    }
    return pk_fail(l->begun == 0 ? PICKET_UNREACHABLE : PICKET_UNKNOWN, "%s: %s: %s",
                   c->site->shown, where, l->trouble);
}

/* What the server's verdict means for the call. */
static enum picket_status judge(const struct pk_etcd_caller *c, uint32_t place)
{
    const struct pk_etcd_line *l = &c->line;
    const char *shown = c->site->shown;
    const char *where = c->site->places.list[place].text;
    switch (l->code) {
    case GRPC_OK:
        return PICKET_OK;
    case GRPC_UNAVAILABLE:
        if (strstr(l->said, "no leader") != NULL) {
            return pk_fail(PICKET_UNREACHABLE,
                           "%s: %s has no leader: a majority of etcd's members must be "
                           "running and see each other",
                           shown, where);
        }
        return pk_fail(PICKET_UNKNOWN, "%s: %s: %s", shown, where, l->said);
    case GRPC_CANCELLED:
    case GRPC_DEADLINE_EXCEEDED:
        return pk_fail(PICKET_UNKNOWN, "%s: %s: %s", shown, where, l->said);
    case GRPC_PERMISSION_DENIED:
        return pk_fail(PICKET_DENIED,
                       "%s: etcd does not let this user do that (%s): grant its role "
                       "reading and writing below the prefix",
                       shown, l->said);
    case GRPC_UNIMPLEMENTED:
        return pk_fail(PICKET_STORE,
                       "%s: %s does not know %s: etcd 3.4 or newer is needed", shown,
                       where, l->said);
    case GRPC_INVALID_ARGUMENT:
        if (strstr(l->said, "user name is empty") != NULL) {
            return pk_fail(PICKET_DENIED,
                           "%s: etcd wants a user: etcd://USER:PASSWORD@HOST", shown);
        }
        if (strstr(l->said, "authentication failed") != NULL) {
            return pk_fail(PICKET_DENIED, "%s: wrong user or password", shown);
        }
        break;
    default:
        break;
    }
    return pk_fail(PICKET_STORE, "%s: etcd refuses: %s (code %ld)", shown, l->said,
                   l->code);
}

/* One attempt at one place. */
static enum picket_status attempt(struct pk_etcd_caller *c, uint32_t place,
                                  const char *method, const struct pk_pb_out *request,
                                  uint64_t until_ms)
{
    struct pk_etcd_line *l = &c->line;
    char limit[48];
    uint64_t now = pk_clock_ms();
    long left = now < until_ms ? (long)(until_ms - now) : 1;
    left = left < 3600000 ? left : 3600000;
    address(l, c, place, method);
    /* So that a member which was stopped meanwhile does not begin when nobody waits. */
    snprintf(limit, sizeof limit, "grpc-timeout: %ldm", left);
    add_header(l, limit);
    frame(l, request);
    curl_easy_setopt(l->easy, CURLOPT_HTTPHEADER, l->headers);
    curl_easy_setopt(l->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)l->out.len);
    curl_easy_setopt(l->easy, CURLOPT_TIMEOUT_MS, left);
    curl_easy_setopt(l->easy, CURLOPT_CONNECTTIMEOUT_MS, left);
    set_warm(l, c->connected && c->at == place);
    CURLcode code = curl_easy_perform(l->easy);
    if (l->warm && l->code < 0 && l->begun == 0) { /* it was closed meanwhile */
        l->trouble[0] = l->error[0] = '\0';
        set_warm(l, false);
        code = curl_easy_perform(l->easy);
    }
    c->connected = code == CURLE_OK;
    c->at = place;
    enum picket_status s;
    if (l->code >= 0) {
        s = judge(c, place);
    } else {
        note_trouble(l, code);
        s = judge_silence(c, place, code);
    }
    c->doubt = c->doubt || s == PICKET_UNKNOWN || l->begun > 1;
    return s;
}

/* Gets a token for our password. */
static enum picket_status authenticate(struct pk_etcd_caller *c, uint32_t place,
                                       uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply, token;
    pk_pb_bytes(&request, 1, pk_text(c->site->url.user));
    pk_pb_bytes(&request, 2, pk_text(c->site->url.password));
    free(c->token);
    c->token = NULL;
    bool doubt = c->doubt;
    enum picket_status s = attempt(c, place, "Auth/Authenticate", &request, until_ms);
    c->doubt = doubt; /* to have asked for a token does no harm */
    s = s == PICKET_UNKNOWN ? PICKET_UNREACHABLE : s;
    if (pk_etcd_refused(c, "authentication is not enabled")) {
        c->open_door = true;
        s = PICKET_OK;
    } else if (s == PICKET_OK && unframe(&c->line, &reply) &&
               pk_etcd_read_token(reply, &token) && token.len > 0) {
        c->token = strndup(token.data, token.len);
        PK_ASSERT(c->token != NULL);
    } else if (s == PICKET_OK) {
        s = pk_etcd_fail_garbled(c);
    }
    pk_pb_free(&request);
    return s;
}

static bool token_is_stale(const struct pk_etcd_caller *c)
{
    return c->line.code == GRPC_UNAUTHENTICATED ||
           pk_etcd_refused(c, "revision of auth store is old") ||
           pk_etcd_refused(c, "auth revision in the header is old") ||
           (c->open_door && pk_etcd_refused(c, "user name is empty"));
}

enum picket_status pk_etcd_call_at(struct pk_etcd_caller *c, uint32_t place,
                                   const char *method, const struct pk_pb_out *request,
                                   uint64_t until_ms, struct pk_bytes *reply)
{
    enum picket_status s = PICKET_OK;
    bool known = c->site->url.user[0] != '\0';
    if (known && c->token == NULL && !c->open_door) {
        s = authenticate(c, place, until_ms);
    }
    for (int tries = 0; s == PICKET_OK && tries < 2; tries++) {
        s = attempt(c, place, method, request, until_ms);
        if (s == PICKET_OK) {
            return unframe(&c->line, reply) ? PICKET_OK : pk_etcd_fail_garbled(c);
        }
        if (known && tries == 0 && token_is_stale(c)) {
            c->open_door = false;
            s = authenticate(c, place, until_ms);
        }
    }
    return s;
}

enum picket_status pk_etcd_call(struct pk_etcd_caller *c, const char *method,
                                const struct pk_pb_out *request, uint64_t until_ms,
                                struct pk_bytes *reply)
{
    enum picket_status s = PICKET_UNREACHABLE;
    uint32_t n = c->site->places.count;
    uint32_t first = c->at;
    c->doubt = false;
    *reply = pk_bytes(NULL, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t now = pk_clock_ms();
        if (i > 0 && now >= until_ms) {
            break;
        }
        uint64_t slice = now < until_ms ? (until_ms - now) / (n - i) : 0;
        slice = slice > ATTEMPT_MIN_MS ? slice : ATTEMPT_MIN_MS;
        uint64_t end = until_ms < now + slice ? until_ms : now + slice;
        s = pk_etcd_call_at(c, (first + i) % n, method, request, end, reply);
        if (s != PICKET_UNREACHABLE && s != PICKET_UNKNOWN) {
            return s;
        }
    }
    c->at = (first + 1) % n;
    return s == PICKET_UNREACHABLE && c->doubt ? PICKET_UNKNOWN : s;
}

/* ---- streams ---- */

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct pk_etcd_stream *s = arg;
    (void)easy;
    struct epoll_event e = {.data.fd = fd};
    e.events = (what == CURL_POLL_IN || what == CURL_POLL_INOUT ? EPOLLIN : 0U) |
               (what == CURL_POLL_OUT || what == CURL_POLL_INOUT ? EPOLLOUT : 0U);
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    } else if (epoll_ctl(s->epoll_fd, known != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                         &e) != 0) {
        (void)epoll_ctl(s->epoll_fd, errno == EEXIST ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                        &e);
    }
    curl_multi_assign(s->multi, fd, what == CURL_POLL_REMOVE ? NULL : s);
    return 0;
}

static int set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct pk_etcd_stream *s = arg;
    (void)multi;
    s->timer_ms = timeout_ms < 0 ? UINT64_MAX : pk_clock_ms() + (uint64_t)timeout_ms;
    return 0;
}

enum picket_status pk_etcd_stream_init(struct pk_etcd_stream *s)
{
    *s = (struct pk_etcd_stream){.timer_ms = UINT64_MAX};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum picket_status status = init_line(&s->line);
    s->multi = curl_multi_init();
    struct epoll_event e = {.events = EPOLLIN, .data.fd = s->nudge_fd};
    if (status != PICKET_OK || s->multi == NULL || s->epoll_fd < 0 || s->nudge_fd < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->nudge_fd, &e) != 0) {
        pk_etcd_stream_free(s);
        return pk_fail(PICKET_LIMIT, "no descriptors left for a connection");
    }
    set_up(&s->line);
    s->line.open_end = true;
    curl_easy_setopt(s->line.easy, CURLOPT_CONNECTTIMEOUT_MS, 3000L);
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETDATA, s);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERDATA, s);
    return PICKET_OK;
}

void pk_etcd_stream_free(struct pk_etcd_stream *s)
{
    pk_etcd_stream_hang_up(s);
    if (s->multi != NULL) {
        curl_multi_cleanup(s->multi);
    }
    free_line(&s->line);
    pk_fd_close(&s->epoll_fd);
    pk_fd_close(&s->nudge_fd);
}

void pk_etcd_stream_forked(struct pk_etcd_stream *s)
{
    pk_etcd_line_forked(&s->line);
    pk_fd_close(&s->epoll_fd);
    pk_fd_close(&s->nudge_fd);
}

void pk_etcd_stream_dial(struct pk_etcd_stream *s, const struct pk_etcd_caller *c,
                         const char *method)
{
    pk_etcd_stream_hang_up(s);
    address(&s->line, c, c->at, method);
    set_warm(&s->line, false);
    curl_easy_setopt(s->line.easy, CURLOPT_HTTPHEADER, s->line.headers);
    curl_easy_setopt(s->line.easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(s->line.easy, CURLOPT_FORBID_REUSE, 1L);
    s->running = curl_multi_add_handle(s->multi, s->line.easy) == CURLM_OK;
}

void pk_etcd_stream_hang_up(struct pk_etcd_stream *s)
{
    if (s->running) {
        curl_multi_remove_handle(s->multi, s->line.easy);
        s->running = false;
    }
}

void pk_etcd_stream_send(struct pk_etcd_stream *s, const struct pk_pb_out *message)
{
    struct pk_etcd_line *l = &s->line;
    if (l->sent == l->out.len) {
        l->out.len = l->sent = 0;
    }
    frame(l, message);
    if (s->running && l->paused) {
        l->paused = false;
        curl_easy_pause(l->easy, CURLPAUSE_CONT);
    }
}

/* Forgets the messages that were handed out. */
static void compact(struct pk_etcd_line *l)
{
    if (l->used > 0) {
        memmove(l->in, l->in + l->used, l->in_len - l->used);
        l->in_len -= l->used;
        l->used = 0;
    }
}

bool pk_etcd_stream_pump(struct pk_etcd_stream *s)
{
    enum { EVENTS = 8 };
    struct epoll_event ready[EVENTS];
    int running = 0;
    uint64_t nudges;
    compact(&s->line);
    int n = epoll_wait(s->epoll_fd, ready, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        if (ready[i].data.fd == s->nudge_fd) {
            (void)!read(s->nudge_fd, &nudges, sizeof nudges);
            continue;
        }
        int what =
            ((ready[i].events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
            ((ready[i].events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
            ((ready[i].events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(s->multi, ready[i].data.fd, what, &running);
    }
    if (s->timer_ms <= pk_clock_ms()) {
        s->timer_ms = UINT64_MAX;
        curl_multi_socket_action(s->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    int queued;
    CURLMsg *m;
    while ((m = curl_multi_info_read(s->multi, &queued)) != NULL) {
        if (m->msg == CURLMSG_DONE) {
            note_trouble(&s->line, m->data.result);
            pk_etcd_stream_hang_up(s);
        }
    }
    return s->running;
}

bool pk_etcd_stream_next(struct pk_etcd_stream *s, struct pk_bytes *out)
{
    return unframe(&s->line, out);
}

void pk_etcd_stream_nudge(struct pk_etcd_stream *s)
{
    uint64_t one = 1;
    (void)!write(s->nudge_fd, &one, sizeof one);
}
