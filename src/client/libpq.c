/* SPDX-License-Identifier: MIT */
/* We wait for the socket ourselves, since libpq alone would wait for a silent server for
 * ever. */
#include "client/libpq.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"

/* ---- words ---- */

const char *pk_libpq_state(const char *words)
{
    const char *fatal = strstr(words, ":  ");
    bool coded = fatal != NULL && strlen(fatal) > 9 && strncmp(fatal + 8, ": ", 2) == 0;
    return coded ? fatal + 3 : NULL;
}

const char *pk_libpq_said(const char *words)
{
    const char *said = strstr(words, ":  ");
    return said != NULL ? said + 3 : words[0] != '\0' ? words : "no answer in time";
}

static const char *option(const PQconninfoOption *options, const char *key)
{
    for (; options->keyword != NULL; options++) {
        if (strcmp(options->keyword, key) == 0) {
            return options->val != NULL ? options->val : "";
        }
    }
    return "";
}

/* One number or several with commas between, each of which is a port or empty. */
static bool are_ports(const char *ports)
{
    for (;;) {
        char *end;
        long number = strtol(ports, &end, 10);
        bool fine = end == ports || (number > 0 && number <= UINT16_MAX);
        if (!fine || (*end != ',' && *end != '\0')) {
            return false;
        }
        if (*end == '\0') {
            return true;
        }
        ports = end + 1;
    }
}

bool pk_libpq_show(const char *url, char *out, size_t size)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    if (options == NULL) {
        return false;
    }
    const char *user = option(options, "user");
    const char *host = option(options, "host");
    const char *port = option(options, "port");
    int n =
        snprintf(out, size, "postgres://%s%s%s%s%s/%s", user, *user != '\0' ? "@" : "",
                 host, *port != '\0' ? ":" : "", port, option(options, "dbname"));
    bool fine = n > 0 && (size_t)n < size && are_ports(port);
    PQconninfoFree(options);
    return fine;
}

/* ---- waiting, never longer than until `until_ms` ---- */

static bool wait_for(PGconn *conn, short events, uint64_t until_ms)
{
    struct pollfd p = {.fd = PQsocket(conn), .events = events};
    int n = 0;
    do {
        uint64_t now = pk_clock_ms();
        uint64_t left = now < until_ms ? until_ms - now : 0;
        n = p.fd < 0 || left == 0 ? 0
                                  : poll(&p, 1, left < INT32_MAX ? (int)left : INT32_MAX);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

bool pk_libpq_connect(PGconn *conn, uint64_t until_ms)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next == PGRES_POLLING_WRITING || next == PGRES_POLLING_READING) {
        if (!wait_for(conn, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_ms)) {
            return false;
        }
        next = PQconnectPoll(conn);
    }
    return next == PGRES_POLLING_OK;
}

/* Sends what is left to send of a long statement; a server that is talking itself has to
 * be heard meanwhile. */
static bool flush(PGconn *conn, uint64_t until_ms)
{
    int more;
    while ((more = PQflush(conn)) > 0) {
        if (!wait_for(conn, POLLIN | POLLOUT, until_ms) || PQconsumeInput(conn) == 0) {
            return false;
        }
    }
    return more == 0;
}

PGresult *pk_libpq_receive(PGconn *conn, uint64_t until_ms)
{
    PGresult *last = NULL;
    bool alive = flush(conn, until_ms);
    while (alive) {
        while (alive && PQisBusy(conn) != 0) {
            alive = wait_for(conn, POLLIN, until_ms) && PQconsumeInput(conn) != 0;
        }
        PGresult *next = alive ? PQgetResult(conn) : NULL;
        if (alive && next == NULL) {
            return last;
        }
        bool failed = last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR;
        PQclear(failed ? next : last);
        last = failed ? last : next;
    }
    PQclear(last);
    return NULL;
}
