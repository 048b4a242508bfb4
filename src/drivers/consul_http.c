/* SPDX-License-Identifier: MIT */
/* One request to Consul and its answer, with a deadline, over libcurl. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/consul.h"
#include "host/clock.h"
#include "host/memory.h"

enum { ANSWER_MAX = 64 * 1024 * 1024 }; /* P10 */

/* ---- sockets: close-on-exec, and known to us ---- */

static void note_socket(struct pk_consul *c, int before, int after)
{
    pthread_mutex_lock(&c->mutex);
    for (size_t i = 0; i < PK_CONSUL_SOCKETS_MAX; i++) {
        if (c->sockets[i] == before) {
            c->sockets[i] = after;
            break;
        }
    }
    pthread_mutex_unlock(&c->mutex);
}

static curl_socket_t open_socket(void *own, curlsocktype purpose,
                                 struct curl_sockaddr *address)
{
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0) {
        note_socket(own, -1, fd);
    }
    return fd;
}

static int close_socket(void *own, curl_socket_t fd)
{
    note_socket(own, fd, -1);
    return close(fd);
}

/* ---- a line ---- */

static size_t take_body(char *bytes, size_t size, size_t n, void *line)
{
    struct pk_consul_line *l = line;
    size_t len = size * n;
    if (len > ANSWER_MAX - l->len) {
        return 0;
    }
    if (l->len + len + 1 > l->capacity) {
        l->capacity = 2 * (l->len + len + 1);
        l->body = pk_door_resize(l->body, l->capacity);
    }
    memcpy(l->body + l->len, bytes, len);
    l->len += len;
    l->body[l->len] = '\0';
    return len;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *line)
{
    static const char name[] = "X-Consul-Index:";
    struct pk_consul_line *l = line;
    size_t len = size * n;
    if (len > strlen(name) && strncasecmp(bytes, name, strlen(name)) == 0) {
        l->index = 0;
        for (size_t i = strlen(name); i < len; i++) {
            if (bytes[i] >= '0' && bytes[i] <= '9') {
                l->index = l->index * 10 + (uint64_t)(bytes[i] - '0');
            }
        }
    }
    return len;
}

void pk_consul_line_open(struct pk_consul *c, struct pk_consul_line *l)
{
    *l = (struct pk_consul_line){.easy = curl_easy_init()};
    pk_memory_need(l->easy);
    curl_easy_setopt(l->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(l->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(l->easy, CURLOPT_ERRORBUFFER, l->why);
    curl_easy_setopt(l->easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(l->easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(l->easy, CURLOPT_OPENSOCKETDATA, c);
    curl_easy_setopt(l->easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(l->easy, CURLOPT_CLOSESOCKETDATA, c);
    curl_easy_setopt(l->easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(l->easy, CURLOPT_WRITEDATA, l);
    curl_easy_setopt(l->easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(l->easy, CURLOPT_HEADERDATA, l);
    curl_easy_setopt(l->easy, CURLOPT_PRIVATE, l);
}

void pk_consul_line_close(struct pk_consul_line *l)
{
    if (l->easy != NULL) {
        curl_easy_cleanup(l->easy);
    }
    (void)pk_door_resize(l->body, 0);
    *l = (struct pk_consul_line){0};
}

void pk_consul_line_set(struct pk_consul *c, struct pk_consul_line *l,
                        const struct pk_consul_ask *a)
{
    char url[PK_CONSUL_URL_ROOM];
    (void)snprintf(url, sizeof url, "%s%s", c->base, a->path);
    l->len = 0;
    l->status = 0;
    l->index = 0;
    l->why[0] = '\0';
    (void)take_body("", 1, 0, l);
    curl_easy_setopt(l->easy, CURLOPT_URL, url);
    if (a->body != NULL) {
        curl_easy_setopt(l->easy, CURLOPT_POSTFIELDS, a->body);
        curl_easy_setopt(l->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(a->body));
    } else {
        curl_easy_setopt(l->easy, CURLOPT_POSTFIELDS, NULL);
        curl_easy_setopt(l->easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(l->easy, CURLOPT_CUSTOMREQUEST, a->method);
}

/* ---- what came of it ---- */

/* The request never got an answer. */
static enum picket_status no_answer(const struct pk_consul *c,
                                    const struct pk_consul_line *l,
                                    const struct pk_consul_ask *a, CURLcode code)
{
    curl_off_t sent = 0;
    const char *why = l->why[0] != '\0' ? l->why : curl_easy_strerror(code);
    (void)curl_easy_getinfo(l->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL: /* what is no HTTP at all */
    case CURLE_WEIRD_SERVER_REPLY:
        return pk_fail(PICKET_STORE, "%s is not a Consul: %s; say its HTTP port", c->show,
                       why);
    case CURLE_WRITE_ERROR:
        return pk_fail(PICKET_STORE, "%s answers with more than %d MiB", c->show,
                       ANSWER_MAX / 1024 / 1024);
    default:
        return pk_fail(a->changes && sent > 0 ? PICKET_UNKNOWN : PICKET_UNREACHABLE,
                       "%s: %s", c->show, why);
    }
}

/* Consul's own words, on one line and not too many of them. */
static const char *words_of(struct pk_consul_line *l)
{
    size_t len = strcspn(l->body, "\r\n");
    l->body[len < 200 ? len : 200] = '\0';
    return l->body;
}

enum picket_status pk_consul_line_end(const struct pk_consul *c, struct pk_consul_line *l,
                                      const struct pk_consul_ask *a, CURLcode code)
{
    (void)curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &l->status);
    if (code != CURLE_OK) {
        return no_answer(c, l, a, code);
    }
    if ((l->status >= 200 && l->status < 300) || l->status == 404 || l->status == 409) {
        return PICKET_OK;
    }
    if (l->status == 401 || l->status == 403) {
        return pk_fail(PICKET_DENIED,
                       "%s: %s; the token in consul://:TOKEN@HOST must be allowed "
                       "key:write on %s/ and session:write",
                       c->show, words_of(l), c->prefix);
    }
    bool leaderless = strstr(l->body, "No cluster leader") != NULL;
    if (leaderless || l->status == 429) { /* refused before anything was done */
        return pk_fail(PICKET_UNREACHABLE, "%s: %s", c->show, words_of(l));
    }
    if (l->status >= 500 && strstr(l->body, "Invalid") == NULL) {
        return pk_fail(a->changes ? PICKET_UNKNOWN : PICKET_UNREACHABLE, "%s: %s",
                       c->show, words_of(l));
    }
    return pk_fail(PICKET_STORE, "%s answers with HTTP status %ld: %s", c->show,
                   l->status, words_of(l));
}

static enum picket_status ask_once(struct pk_consul *c, struct pk_consul_line *l,
                                   const struct pk_consul_ask *a, uint64_t until_ms)
{
    uint64_t now = pk_clock_ms();
    if (now >= until_ms) {
        return pk_fail(PICKET_UNREACHABLE, "%s: no time is left to ask", c->show);
    }
    uint64_t ms = until_ms - now < c->patience_ms ? until_ms - now : c->patience_ms;
    pk_consul_line_set(c, l, a);
    curl_easy_setopt(l->easy, CURLOPT_TIMEOUT_MS, (long)ms);
    return pk_consul_line_end(c, l, a, curl_easy_perform(l->easy));
}

/* Asked once before anything else, since other HTTP servers have answers too: every agent
 * tells who leads, without a token. */
static enum picket_status make_sure(struct pk_consul *c, struct pk_consul_line *l,
                                    uint64_t until_ms)
{
    const struct pk_consul_ask a = {.method = "GET", .path = "/status/leader"};
    enum picket_status s = ask_once(c, l, &a, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    json_error_t unused;
    json_t *leader = json_loadb(l->body, l->len, JSON_DECODE_ANY, &unused);
    if (l->status != 200 || !json_is_string(leader)) {
        s = pk_fail(PICKET_STORE, "%s is not a Consul; say the HTTP port of an agent",
                    c->show);
    } else if (json_string_length(leader) == 0) {
        s = pk_fail(PICKET_UNREACHABLE, "%s: No cluster leader", c->show);
    } else {
        c->known = true;
    }
    json_decref(leader);
    return s;
}

enum picket_status pk_consul_ask(struct pk_consul *c, struct pk_consul_line *l,
                                 const struct pk_consul_ask *a, uint64_t until_ms)
{
    enum picket_status s = c->known ? PICKET_OK : make_sure(c, l, until_ms);
    return s == PICKET_OK ? ask_once(c, l, a, until_ms) : s;
}

json_t *pk_consul_json(const struct pk_consul *c, const struct pk_consul_line *l,
                       enum picket_status *s)
{
    json_error_t e = {0};
    json_t *j = json_loadb(l->body, l->len, JSON_DECODE_ANY, &e);
    if (j == NULL) {
        *s = pk_fail(PICKET_STORE, "%s answers with what is not JSON: %s", c->show,
                     e.text);
    }
    return j;
}

void pk_consul_path(char out[PK_CONSUL_URL_ROOM], const char *key, const char *query)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789_-./~";
    size_t len = (size_t)snprintf(out, PK_CONSUL_URL_ROOM, "/kv/");
    for (const char *at = key; *at != '\0'; at++) {
        if (strchr(plain, *at) != NULL) {
            out[len++] = *at;
        } else {
            len += (size_t)snprintf(out + len, 4, "%%%02X", (unsigned char)*at);
        }
    }
    (void)snprintf(out + len, PK_CONSUL_URL_ROOM - len, "%s", query);
}
