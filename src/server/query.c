/* SPDX-License-Identifier: MIT */
#include "server/query.h"

#include "core/door.h"

/* ---- the query ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Without its %XX; what is no such thing stays as it is. Returns the length, cut to what
 * a name can have. */
static uint8_t decode(char *to, struct pk_bytes from)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < from.len && n < PK_NAME_MAX; i++) {
        char c = from.data[i];
        bool coded = c == '%' && i + 2 < from.len && hex(from.data[i + 1]) >= 0 &&
                     hex(from.data[i + 2]) >= 0;
        if (coded) {
            c = (char)(hex(from.data[i + 1]) * 16 + hex(from.data[i + 2]));
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        to[n++] = c;
    }
    return (uint8_t)n;
}

/* The place of the word in the list, which ends with NULL; 0 when it is not there. */
static uint32_t place_of(struct pk_bytes word, const char *const *list)
{
    for (uint32_t i = 0; list[i] != NULL; i++) {
        if (pk_bytes_equal(word, pk_text(list[i]))) {
            return i;
        }
    }
    return 0;
}

static void read_pair(struct pk_query *w, struct pk_bytes key, struct pk_bytes value)
{
    static const char *const sorts[] = {"waiters", "age", "left", "name", NULL};
    static const char *const shows[] = {"all",      "held",   "waiting",
                                        "expiring", "closed", NULL};
    if (pk_bytes_equal(key, pk_text("q"))) {
        w->text_len = decode(w->text, value);
        w->prefix = w->text_len > 0 && w->text[w->text_len - 1] == '*';
        w->text_len = (uint8_t)(w->text_len - w->prefix);
    } else if (pk_bytes_equal(key, pk_text("lock"))) {
        w->lock_len = decode(w->lock, value);
    } else if (pk_bytes_equal(key, pk_text("sort"))) {
        w->sort = (enum pk_query_sort)place_of(value, sorts);
    } else if (pk_bytes_equal(key, pk_text("show"))) {
        w->show = (enum pk_query_show)place_of(value, shows);
    }
}

void pk_query_read(struct pk_query *w, struct pk_bytes query)
{
    memset(w, 0, sizeof *w);
    const char *at = query.data;
    const char *end = query.data + query.len;
    while (at < end) {
        const char *amp = memchr(at, '&', (size_t)(end - at));
        const char *stop = amp == NULL ? end : amp;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (equals != NULL) {
            read_pair(w, pk_bytes(at, (size_t)(equals - at)),
                      pk_bytes(equals + 1, (size_t)(stop - equals - 1)));
        }
        at = stop == end ? end : stop + 1;
    }
}

/* ---- what fits ---- */

static bool has_within(struct pk_bytes in, const char *text, uint32_t len)
{
    for (uint32_t i = 0; i + len <= in.len; i++) {
        if (in.data[i] == text[0] && memcmp(in.data + i, text, len) == 0) {
            return true;
        }
    }
    return false;
}

static bool fits_text(const struct pk_query *w, const struct pk_look_lock *l)
{
    if (w->text_len == 0) {
        return true;
    }
    if (w->prefix) {
        return l->name.len >= w->text_len &&
               memcmp(l->name.data, w->text, w->text_len) == 0;
    }
    return has_within(l->name, w->text, w->text_len) ||
           has_within(l->label, w->text, w->text_len);
}

bool pk_query_fits(const struct pk_query *w, const struct pk_look_lock *l,
                   uint64_t now_ms)
{
    switch (w->show) {
    case PK_SHOW_HELD:
        return l->holders > 0 && fits_text(w, l);
    case PK_SHOW_WAITING:
        return l->waiters > 0 && fits_text(w, l);
    case PK_SHOW_EXPIRING:
        return l->holders > 0 && l->ends_ms < now_ms + PK_QUERY_EXPIRING_MS &&
               fits_text(w, l);
    case PK_SHOW_CLOSED:
        return l->closed_until_ms > 0 && fits_text(w, l);
    default:
        return fits_text(w, l);
    }
}

/* ---- the best ---- */

void pk_best_begin(struct pk_best *b, enum pk_query_sort sort)
{
    b->sort = sort;
    b->n = 0;
    b->offered = 0;
}

/* Whether row `a` comes before row `b`. */
static bool before(const struct pk_best_row *a, const struct pk_best_row *b)
{
    if (a->key != b->key) {
        return a->key < b->key;
    }
    return pk_bytes_compare(pk_bytes(a->name, a->name_len),
                            pk_bytes(b->name, b->name_len)) < 0;
}

static void swap(struct pk_best_row *a, struct pk_best_row *b)
{
    struct pk_best_row c = *a;
    *a = *b;
    *b = c;
}

static void sink(struct pk_best *b, uint32_t at, uint32_t n)
{
    for (;;) {
        uint32_t last = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++) {
            last = before(&b->rows[last], &b->rows[child]) ? child : last;
        }
        if (last == at) {
            return;
        }
        swap(&b->rows[at], &b->rows[last]);
        at = last;
    }
}

static void rise(struct pk_best *b, uint32_t at)
{
    while (at > 0 && before(&b->rows[(at - 1) / 2], &b->rows[at])) {
        swap(&b->rows[at], &b->rows[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static uint64_t key_of(enum pk_query_sort sort, const struct pk_look_lock *l)
{
    switch (sort) {
    case PK_SORT_WAITERS:
        return UINT64_MAX - l->waiters;
    case PK_SORT_AGE:
        return l->holders == 0 ? UINT64_MAX : l->since_ms;
    case PK_SORT_LEFT:
        return l->holders == 0 ? UINT64_MAX : l->ends_ms;
    default:
        return 0;
    }
}

void pk_best_offer(struct pk_best *b, const struct pk_look_lock *l)
{
    PK_ASSERT(l->name.len <= PK_NAME_MAX);
    uint64_t key = key_of(b->sort, l);
    b->offered++;
    if (b->n == PK_QUERY_ROWS) {
        const struct pk_best_row *last = &b->rows[0];
        struct pk_bytes name = pk_bytes(last->name, last->name_len);
        if (key > last->key ||
            (key == last->key && pk_bytes_compare(l->name, name) >= 0)) {
            return;
        }
    }
    struct pk_best_row *r = &b->rows[b->n == PK_QUERY_ROWS ? 0 : b->n];
    r->key = key;
    r->name_len = (uint8_t)l->name.len;
    memcpy(r->name, l->name.data, l->name.len);
    if (b->n == PK_QUERY_ROWS) {
        sink(b, 0, b->n);
    } else {
        rise(b, b->n++);
    }
}

void pk_best_finish(struct pk_best *b)
{
    for (uint32_t n = b->n; n > 1; n--) {
        swap(&b->rows[0], &b->rows[n - 1]);
        sink(b, 0, n - 1);
    }
}
