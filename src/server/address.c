/* SPDX-License-Identifier: MIT */
#include "server/address.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "core/door.h"

enum { HOST_BYTES = 256 };

const char *pk_address_split(const char *text, char *host, size_t size, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text) {
        return "an address is HOST:PORT";
    }
    const char *from = text;
    size_t len = (size_t)(colon - text);
    if (from[0] == '[' && len >= 2 && from[len - 1] == ']') {
        from++;
        len -= 2;
    } else if (memchr(from, ':', len) != NULL) {
        return "an IPv6 address stands in brackets: [::1]:7420";
    }
    char *end;
    unsigned long n = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || n > UINT16_MAX) {
        return "the port must be a number up to 65535";
    }
    if (len == 0 || len >= size) {
        return "the host is missing or too long";
    }
    memcpy(host, from, len);
    host[len] = '\0';
    *port = (uint16_t)n;
    return NULL;
}

/* getaddrinfo for HOST:PORT. NULL, or a sentence. */
static const char *resolve(const char *text, int flags, struct sockaddr_storage *out)
{
    char host[HOST_BYTES];
    uint16_t port;
    const char *wrong = pk_address_split(text, host, sizeof host, &port);
    if (wrong != NULL) {
        return wrong;
    }
    const char *service = strrchr(text, ':') + 1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found;
    int failed = getaddrinfo(host, service, &hints, &found);
    if (failed != 0) {
        return gai_strerror(failed);
    }
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return NULL;
}

const char *pk_address_resolve(const char *text, struct sockaddr_storage *out)
{
    return resolve(text, 0, out);
}

bool pk_address_is_number(const char *text, struct sockaddr_storage *out)
{
    return resolve(text, AI_NUMERICHOST | AI_NUMERICSERV, out) == NULL;
}

/* ---- on a running loop ---- */

struct pk_lookup {
    uv_getaddrinfo_t request;
    pk_lookup_done done; /* NULL: cancelled */
    void *ctx;
};

static void on_found(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct pk_lookup *l = request->data;
    if (l->done != NULL) {
        l->done(l->ctx, status == 0 ? found->ai_addr : NULL,
                status == 0 ? NULL : uv_strerror(status));
    }
    uv_freeaddrinfo(found);
    pk_door_resize(l, 0);
}

struct pk_lookup *pk_lookup_start(uv_loop_t *loop, const char *text, pk_lookup_done done,
                                  void *ctx, const char **why)
{
    char host[HOST_BYTES];
    uint16_t port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    *why = pk_address_split(text, host, sizeof host, &port);
    if (*why != NULL) {
        return NULL;
    }
    struct pk_lookup *l = pk_door_resize(NULL, sizeof *l);
    l->request.data = l;
    l->done = done;
    l->ctx = ctx;
    int failed =
        uv_getaddrinfo(loop, &l->request, on_found, host, strrchr(text, ':') + 1, &hints);
    if (failed != 0) {
        pk_door_resize(l, 0);
        *why = uv_strerror(failed);
        return NULL;
    }
    return l;
}

void pk_lookup_cancel(struct pk_lookup *l)
{
    l->done = NULL;
    (void)uv_cancel((uv_req_t *)&l->request); /* fails when a thread has begun with it */
}

/* ---- listening ---- */

int pk_address_listen(uv_tcp_t *listener, const struct sockaddr_storage *where,
                      uv_connection_cb connected, uint16_t *port)
{
    struct sockaddr_in6 bound = {0}; /* an IPv4 address has its port in the same place */
    int size = sizeof bound;
    int failed = uv_tcp_bind(listener, (const struct sockaddr *)where, 0);
    if (failed == 0) {
        failed = uv_listen((uv_stream_t *)listener, PK_ADDRESS_BACKLOG, connected);
    }
    if (failed == 0) {
        failed = uv_tcp_getsockname(listener, (struct sockaddr *)&bound, &size);
    }
    *port = ntohs(bound.sin6_port);
    return failed;
}
