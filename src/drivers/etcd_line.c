/* SPDX-License-Identifier: MIT */
#include "drivers/etcd_line.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "client/error.h"
#include "core/door.h"
#include "host/fd.h"
#include "host/memory.h"

enum {
    FRAME = 5,                      /* bytes before each message */
    MESSAGE_MAX = 64 * 1024 * 1024, /* P10 */
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

/* How connections are made. */
static void set_connecting(CURL *e, struct pk_etcd_line *l)
{
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* a resolver that hangs is left alone */
    curl_easy_setopt(e, CURLOPT_PROXY, "");
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, l);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, l);
}

/* What is the same for all that this line will ever do. */
static void set_up(struct pk_etcd_line *l)
{
    CURL *e = l->easy;
    set_connecting(e, l);
    curl_easy_setopt(e, CURLOPT_POST, 1L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, l->error);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, give_bytes);
    curl_easy_setopt(e, CURLOPT_READDATA, l);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, rewind_bytes);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, l);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, l);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, l);
}

static void start_library(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

enum picket_status pk_etcd_line_init(struct pk_etcd_line *l)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_library);
    *l = (struct pk_etcd_line){.code = -1};
    for (size_t i = 0; i < PK_ETCD_FDS_MAX; i++) {
        l->fds[i] = -1;
    }
    l->easy = curl_easy_init();
    if (l->easy == NULL) {
        return pk_fail(PICKET_LIMIT, "libcurl can't be started");
    }
    set_up(l);
    return PICKET_OK;
}

void pk_etcd_line_disconnect(struct pk_etcd_line *l)
{
    CURL *another = curl_easy_init();
    pk_memory_need(another);
    curl_easy_cleanup(l->easy); /* its connections are its own */
    l->easy = another;
    set_up(l);
}

void pk_etcd_line_free(struct pk_etcd_line *l)
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

void pk_etcd_line_put(struct pk_etcd_line *l, const struct pk_pb_out *message)
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

bool pk_etcd_line_take(struct pk_etcd_line *l, struct pk_bytes *out)
{
    size_t n = l->in_len - l->used;
    if (n < FRAME || l->in[l->used] != 0) { /* 1: compressed; we never asked for that */
        return false;
    }
    const unsigned char *at = l->in + l->used;
    size_t len = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
    if (len > n - FRAME) {
        return false;
    }
    *out = pk_bytes(at + FRAME, len);
    l->used += FRAME + len;
    return true;
}

void pk_etcd_line_header(struct pk_etcd_line *l, const char *text)
{
    struct curl_slist *more = curl_slist_append(l->headers, text);
    pk_memory_need(more);
    l->headers = more;
}

static void set_url(CURL *easy, const struct pk_place *p, const char *method)
{
    char url[PK_HOST_MAX + 128];
    bool v6 = strchr(p->host, ':') != NULL;
    snprintf(url, sizeof url, "http://%s%s%s:%u/etcdserverpb.%s", v6 ? "[" : "", p->host,
             v6 ? "]" : "", (unsigned)p->port, method);
    curl_easy_setopt(easy, CURLOPT_URL, url);
}

CURL *pk_etcd_line_probe(struct pk_etcd_line *l, const struct pk_place *p, int timeout_ms,
                         int *fd)
{
    CURL *probe = curl_easy_init();
    curl_socket_t socket_fd = CURL_SOCKET_BAD;
    if (probe == NULL) {
        return NULL;
    }
    l->warm = false;
    set_connecting(probe, l);
    set_url(probe, p, "");
    curl_easy_setopt(probe, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(probe, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    if (curl_easy_perform(probe) != CURLE_OK ||
        curl_easy_getinfo(probe, CURLINFO_ACTIVESOCKET, &socket_fd) != CURLE_OK) {
        curl_easy_cleanup(probe);
        return NULL;
    }
    *fd = socket_fd;
    return probe;
}

void pk_etcd_line_address(struct pk_etcd_line *l, const struct pk_place *p,
                          const char *token, const char *method)
{
    set_url(l->easy, p, method);
    curl_slist_free_all(l->headers);
    l->headers = NULL;
    pk_etcd_line_header(l, "content-type: application/grpc");
    pk_etcd_line_header(l, "te: trailers");
    pk_etcd_line_header(l, "accept:");
    /* A member that has lost the others says so at once, instead of waiting for them. */
    pk_etcd_line_header(l, "hasleader: true");
    if (token != NULL) {
        char header[1024];
        snprintf(header, sizeof header, "token: %s", token);
        pk_etcd_line_header(l, header);
    }
    l->out.len = l->sent = l->in_len = l->used = 0;
    l->begun = 0;
    l->paused = l->grpc = false;
    l->code = -1;
    l->said[0] = l->trouble[0] = l->error[0] = '\0';
}

void pk_etcd_line_warm(struct pk_etcd_line *l, bool warm)
{
    l->warm = warm;
    curl_easy_setopt(l->easy, CURLOPT_HTTP_VERSION,
                     warm ? (long)CURL_HTTP_VERSION_2_0
                          : (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
}

void pk_etcd_line_trouble(struct pk_etcd_line *l, CURLcode code)
{
    long number = 0;
    curl_easy_getinfo(l->easy, CURLINFO_OS_ERRNO, &number);
    if (code == CURLE_COULDNT_CONNECT && number != 0) {
        snprintf(l->trouble, sizeof l->trouble, "%s: is etcd running there?",
                 strerror((int)number));
    } else if (l->trouble[0] == '\0') {
        snprintf(l->trouble, sizeof l->trouble, "%s",
                 l->error[0] != '\0' ? l->error : curl_easy_strerror(code));
    }
}
