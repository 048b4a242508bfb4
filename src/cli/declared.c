/* SPDX-License-Identifier: MIT */
#include "cli/declared.h"

#include <stdio.h>
#include <string.h>

#include "cli/text.h"

enum { NAME_COLUMNS = 14, FEATURES_MAX = 10 };

/* What not every store can do. */
struct feature {
    const char *key;  /* in JSON */
    const char *name; /* for people */
    int there;
};

static size_t features_of(const struct picket_guarantees *g,
                          struct feature out[FEATURES_MAX])
{
    const struct feature list[FEATURES_MAX] = {
        {"shared", "shared locks", g->shared},
        {"semaphore", "semaphores", g->semaphore},
        {"sets", "sets of locks", g->sets},
        {"election", "elections", g->election},
        {"fences", "fences in the store itself", g->fence},
        {"watch", "watching", g->watch},
        {"lock_delay", "lock-delay", g->lock_delay},
        {"extend", "another TTL later", g->extend},
        {"by_id", "leases by their id", g->by_id},
        {"reasons", "telling why a lock was lost", g->reasons},
    };
    memcpy(out, list, sizeof list);
    return FEATURES_MAX;
}

void pk_declared_json(struct pk_json *j, const struct picket_guarantees *g)
{
    struct feature list[FEATURES_MAX];
    size_t n = features_of(g, list);
    pk_json_text(j, "driver", g->driver);
    pk_json_text(j, "promise", g->promise);
    pk_json_text(j, "scope", g->scope);
    pk_json_text(j, "token_source", g->token);
    pk_json_text(j, "fairness", g->fairness);
    pk_json_text(j, "waiting", g->waiting);
    pk_json_text(j, "clock", g->clock);
    pk_json_text(j, "failover", g->failover);
    for (size_t i = 0; i < n; i++) {
        pk_json_bool(j, list[i].key, list[i].there != 0);
    }
    pk_json_number(j, "tokens", (uint64_t)g->tokens);
}

/* How many characters of `text` go on a line of `room`: up to the last blank that fits,
 * or the whole word if it is too long for any line. */
static size_t line_of(const char *text, size_t room)
{
    size_t best = 0;
    size_t columns = 0;
    size_t at = 0;
    for (; text[at] != '\0'; at++) {
        if (text[at] == ' ') {
            if (columns > room && best > 0) {
                return best;
            }
            best = at;
        }
        columns += ((unsigned char)text[at] & 0xc0) != 0x80;
    }
    return columns > room && best > 0 ? best : at;
}

void pk_page_print(size_t indent, const char *text)
{
    for (;;) {
        size_t len = line_of(text, PK_PAGE_COLUMNS - indent);
        pk_output_bytes(text, len);
        (void)putchar('\n');
        text += len + strspn(text + len, " ");
        if (*text == '\0') {
            return;
        }
        (void)printf("%*s", (int)indent, "");
    }
}

static void print_line(const char *name, const char *text)
{
    (void)printf("  %-*s", NAME_COLUMNS - 2, name);
    pk_page_print(NAME_COLUMNS, text);
}

static void print_features(const struct picket_guarantees *g, const char *name,
                           bool there)
{
    struct feature list[FEATURES_MAX];
    size_t n = features_of(g, list);
    char text[400] = "";
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if ((list[i].there != 0) == there) {
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s",
                                    len > 0 ? ", " : "", list[i].name);
        }
    }
    print_line(name, len > 0 ? text : "nothing");
}

static const char *promise_text(const struct picket_guarantees *g)
{
    return strcmp(g->promise, "correctness") == 0
               ? "correctness: one holder at a time, as far as clocks keep their rate"
               : "efficiency: two holders are possible; for work that may be done twice";
}

void pk_declared_print(const struct picket_guarantees *g)
{
    static const char *const growth[] = {"none", "grow with every grant of a lock",
                                         "grow with every grant of any lock"};
    char tokens[400];
    (void)snprintf(tokens, sizeof tokens, "%s: %s", growth[g->tokens], g->token);
    print_line("promise", promise_text(g));
    print_line("scope", g->scope);
    print_line("tokens", tokens);
    print_line("fairness", g->fairness);
    print_line("waiting", g->waiting);
    print_line("clock", g->clock);
    print_line("failover", g->failover);
    print_features(g, "offers", true);
    print_features(g, "lacks", false);
}
