/* SPDX-License-Identifier: MIT */
/*
 * Names of nodes. A claim is `_c_LEASE-REQUEST-lock-NUMBER`, a shared one ends in
 * `-rlock-NUMBER`; with names=kazoo `__lock__` and `__rlock__` stand before the number.
 * The number is ZooKeeper's, ten digits. So Curator's InterProcessMutex, which sorts by
 * what follows its last "lock-", waits for us as for its own kind, and kazoo's locks do
 * with theirs. Whatever else ends in a number is somebody's claim too: we wait for it,
 * as for an exclusive one unless it says otherwise.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/zk_inside.h"
#include "host/memory.h"

enum { DIGITS = 10 };

static bool ends_in(const char *text, size_t len, const char *end)
{
    size_t n = strlen(end);
    return len >= n && memcmp(text + len - n, end, n) == 0;
}

bool pk_zk_place_read(const char *node, struct pk_zk_place *out)
{
    size_t len = strlen(node);
    if (len < DIGITS) {
        return false;
    }
    len -= DIGITS;
    uint64_t number = 0;
    for (const char *at = node + len; *at != '\0'; at++) {
        if (*at < '0' || *at > '9') {
            return false;
        }
        number = 10 * number + (uint64_t)(*at - '0');
    }
    bool shared = ends_in(node, len, "-rlock-") || ends_in(node, len, "__rlock__") ||
                  ends_in(node, len, "__READ__");
    *out = (struct pk_zk_place){.number = number, .shared = shared};
    return true;
}

enum pk_claim_state pk_zk_stands(const struct String_vector *nodes, const char *own,
                                 const char **ahead)
{
    struct pk_zk_place mine = {0}, other, nearest = {0};
    bool there = false;
    *ahead = NULL;
    if (!pk_zk_place_read(own, &mine)) {
        return PK_CLAIM_NONE;
    }
    for (int i = 0; i < nodes->count; i++) {
        const char *node = nodes->data[i];
        there = there || strcmp(node, own) == 0;
        bool before = pk_zk_place_read(node, &other) && other.number < mine.number;
        bool bars = before && !(mine.shared && other.shared);
        if (bars && (*ahead == NULL || other.number > nearest.number)) {
            *ahead = node;
            nearest = other;
        }
    }
    return !there ? PK_CLAIM_NONE : *ahead == NULL ? PK_CLAIM_HELD : PK_CLAIM_WAITING;
}

const char *pk_zk_starts(const struct String_vector *nodes, const char *start)
{
    for (int i = 0; i < nodes->count; i++) {
        if (strncmp(nodes->data[i], start, strlen(start)) == 0) {
            return nodes->data[i];
        }
    }
    return NULL;
}

static int by_number(const void *left, const void *right)
{
    struct pk_zk_place a, b;
    bool a_in = pk_zk_place_read(*(char *const *)left, &a);
    bool b_in = pk_zk_place_read(*(char *const *)right, &b);
    if (!a_in || !b_in) {
        return (int)b_in - (int)a_in;
    }
    return (a.number > b.number) - (a.number < b.number);
}

int pk_zk_sort(struct String_vector *nodes, int *held)
{
    struct pk_zk_place first = {0}, p;
    int n = 0;
    *held = 0;
    if (nodes->count > 0) {
        qsort(nodes->data, (size_t)nodes->count, sizeof nodes->data[0], by_number);
    }
    for (; n < nodes->count && pk_zk_place_read(nodes->data[n], &p); n++) {
        first = n == 0 ? p : first;
        bool beside = first.shared && p.shared && *held == n;
        *held += n == 0 || beside;
    }
    return n;
}

/* ---- breaks ---- */

char *pk_zk_break_write(const struct pk_zk_break *b, size_t *len)
{
    char *text = pk_memory_print("picket-break=1\ntoken=%" PRIu64 "\nby=%s\nwhy=%s\n",
                                 b->token, b->by, b->why);
    *len = strlen(text);
    return text;
}

/* Reads NAME=TEXT and moves behind it. */
static bool take_line(struct pk_bytes *text, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    const char *end = memchr(text->data, '\n', text->len);
    size_t line = end != NULL ? (size_t)(end - text->data) : 0;
    if (end == NULL || line < n || memcmp(text->data, name, n) != 0 || line - n >= size) {
        return false;
    }
    memcpy(out, text->data + n, line - n);
    out[line - n] = '\0';
    *text = pk_bytes(end + 1, text->len - line - 1);
    return true;
}

bool pk_zk_break_read(struct pk_bytes text, struct pk_zk_break *out)
{
    char version[8], token[24];
    bool whole = take_line(&text, "picket-break=", version, sizeof version) &&
                 take_line(&text, "token=", token, sizeof token) &&
                 take_line(&text, "by=", out->by, sizeof out->by) &&
                 take_line(&text, "why=", out->why, sizeof out->why);
    out->token = whole ? strtoull(token, NULL, 10) : 0;
    return whole;
}
