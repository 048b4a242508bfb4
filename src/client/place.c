/* SPDX-License-Identifier: MIT */
#include "client/place.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* What may stand in a name or an address; anything else is a slip worth telling. */
static bool host_char(char c, bool bracketed)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool other = c == '-' || c == '.' || c == '_';
    /* ':' and the zone's '%' belong to IPv6 */
    return letter || other || (c >= '0' && c <= '9') ||
           (bracketed && (c == ':' || c == '%'));
}

/* A port is 1 to 65535, in at most five digits. */
static bool read_port(struct pk_bytes text, uint16_t *out)
{
    uint32_t port = 0;
    for (uint32_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || i == 5) {
            return false;
        }
        port = port * 10 + (uint32_t)(text.data[i] - '0');
    }
    *out = (uint16_t)port;
    return port >= 1 && port <= UINT16_MAX;
}

/* Cuts `text` into host and port (none: empty); NULL, or what is wrong. */
static const char *cut(struct pk_bytes text, struct pk_bytes *host, struct pk_bytes *port,
                       bool *bracketed)
{
    const char *end = text.data + text.len;
    const char *host_end;
    *bracketed = text.len > 0 && text.data[0] == '[';
    if (*bracketed) {
        host_end = memchr(text.data, ']', text.len);
        if (host_end == NULL) {
            return "a bracket is not closed";
        }
        *host = pk_bytes(text.data + 1, (size_t)(host_end - text.data - 1));
        host_end++;
    } else {
        const char *colon = memchr(text.data, ':', text.len);
        host_end = colon != NULL ? colon : end;
        *host = pk_bytes(text.data, (size_t)(host_end - text.data));
        if (colon != NULL && memchr(colon + 1, ':', (size_t)(end - colon - 1)) != NULL) {
            return "an IPv6 address goes in brackets: [::1]:7420";
        }
    }
    if (host_end < end && *host_end != ':') {
        return "only a port can follow the brackets";
    }
    *port = host_end < end ? pk_bytes(host_end + 1, (size_t)(end - host_end - 1))
                           : pk_bytes("", 0);
    return host_end < end && port->len == 0 ? "a port is missing after the colon" : NULL;
}

const char *pk_place_read(struct pk_bytes text, uint16_t default_port,
                          struct pk_place *out)
{
    struct pk_bytes host, port;
    bool bracketed;
    if (text.len == 0) {
        return "a host is missing";
    }
    const char *wrong = cut(text, &host, &port, &bracketed);
    if (wrong != NULL) {
        return wrong;
    }
    if (host.len == 0) {
        return "a host is missing";
    }
    if (host.len > PK_HOST_MAX) {
        return "a host name has at most 253 bytes";
    }
    for (uint32_t i = 0; i < host.len; i++) {
        if (!host_char(host.data[i], bracketed)) {
            return "a host is a name or an address; no path, user or options";
        }
    }
    out->port = default_port;
    if (port.len > 0 && !read_port(port, &out->port)) {
        return "a port is a number from 1 to 65535";
    }
    memcpy(out->host, host.data, host.len);
    out->host[host.len] = '\0';
    (void)snprintf(out->text, sizeof out->text, bracketed ? "[%s]:%u" : "%s:%u",
                   out->host, (unsigned)out->port);
    return NULL;
}

const char *pk_places_read(struct pk_bytes text, uint16_t port, struct pk_places *out)
{
    const char *end = text.data + text.len;
    out->count = 0;
    for (const char *at = text.data;; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        if (out->count == PK_PLACES_MAX) {
            return "there are more than 16 hosts";
        }
        const char *wrong = pk_place_read(pk_bytes(at, (size_t)(stop - at)), port,
                                          &out->list[out->count]);
        if (wrong != NULL) {
            return wrong;
        }
        out->count++;
        at = stop;
        if (at == end) {
            return NULL;
        }
    }
}
