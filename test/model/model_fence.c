/* SPDX-License-Identifier: MIT */
/* The model's fences (F1 to F10). */
#include "model_state.h"

#include <stdlib.h>

static struct model_fence *fence_named(const struct model *m, struct pk_bytes name)
{
    for (size_t i = 0; i < m->n_fences; i++) {
        if (text_is(m->fences[i].name, name)) {
            return &m->fences[i];
        }
    }
    return NULL;
}

/* Names the first limit that accepting the command would pass, or NULL. */
static const char *limit_passed(const struct model *m, const struct pk_command *c,
                                const struct model_fence *f)
{
    uint64_t more = f == NULL ? c->name.len : 0;
    uint64_t less = 0;
    if (c->verb == PK_FENCE_SET) {
        if (c->value.len > m->limits.value_bytes) {
            return "value_bytes";
        }
        more += c->value.len;
        less = f == NULL ? 0 : f->value.len;
    }
    if (f == NULL && m->n_fences + 1 > m->limits.fences) {
        return "fences";
    }
    return grows_past_store(m, more, less) ? "stored_bytes" : NULL;
}

static struct model_fence *create(struct model *m, struct pk_bytes name)
{
    m->fences = realloc(m->fences, (m->n_fences + 1) * sizeof *m->fences);
    if (m->fences == NULL) {
        abort();
    }
    struct model_fence *f = &m->fences[m->n_fences++];
    *f = (struct model_fence){
        .name = text_from(name), .value = text_from(pk_text("")), .ends = NEVER};
    return f;
}

/* Creates the fence if it is not there; false: a limit does not allow the command. */
static bool find_room(struct model *m, const struct pk_command *c, struct model_fence **f,
                      struct pk_effect *reply)
{
    const char *limit = limit_passed(m, c, *f);
    if (limit != NULL) {
        refuse_limit(reply, limit);
    } else if (*f == NULL) {
        *f = create(m, c->name);
    }
    return limit == NULL;
}

static void raise_to(struct model *m, struct model_fence *f, uint64_t token)
{
    if (token > f->token) {
        f->token = token;
        f->request = 0;
        struct pk_effect e = {
            .kind = PK_EV_FENCE_RAISED, .name = bytes_of(f->name), .token = token};
        pk_effects_add(&m->events, &e);
    }
}

/* F7: lets a lower token through, which leaves its trace and nothing else. */
static void let_through(struct model *m, struct model_fence *f, uint64_t token,
                        struct pk_effect *reply)
{
    f->shadowed++;
    reply->would = PK_STALE;
    struct pk_effect e = {
        .kind = PK_EV_FENCE_SHADOWED, .name = bytes_of(f->name), .token = token};
    pk_effects_add(&m->events, &e);
}

static void set_value(struct model *m, struct model_fence *f, const struct pk_command *c)
{
    free(f->value.data);
    f->value = text_from(c->value);
    if (c->token == f->token && c->request != 0) {
        f->request = c->request;
    }
    f->ends = NEVER;
    if (c->ttl_ms > 0) { /* F10 */
        f->ends = m->clock + c->ttl_ms;
        f->seq = m->next_seq++;
    }
    struct pk_effect e = {.kind = PK_EV_FENCE_SET,
                          .name = bytes_of(f->name),
                          .token = c->token,
                          .value = bytes_of(f->value)};
    pk_effects_add(&m->events, &e);
}

static void check(const struct model_fence *f, const struct pk_command *c,
                  struct pk_effect *reply)
{
    bool lower = f != NULL && c->token < f->token;
    bool equal = f != NULL && c->token == f->token;
    reply->status = equal ? PK_OK : lower ? PK_STALE : PK_UNCLAIMED;
    if (f != NULL && f->shadow) {
        reply->would = reply->status;
        reply->status = PK_OK;
    }
}

/* CHECK, SHOW and a GET without a token: they look and change nothing (F2, F4, F8, F9).
 */
static void look(const struct model *m, const struct model_fence *f,
                 const struct pk_command *c, struct pk_effect *reply)
{
    reply->token = f == NULL ? 0 : f->token;
    if (c->verb == PK_FENCE_CHECK) {
        check(f, c, reply);
    } else if (f == NULL) {
        reply->status = PK_NOTFOUND;
    } else if (c->verb == PK_FENCE_SHOW) {
        reply->shadow = f->shadow ? 1 : 0;
        reply->shadowed = f->shadowed;
        reply->epoch = f->epoch;
        reply->value_bytes = f->value.len;
        reply->left_ms = f->ends == NEVER     ? 0
                         : f->ends > m->clock ? f->ends - m->clock
                                              : 1;
    } else if (f->token == 0) {
        reply->status = PK_NOTFOUND;
    } else {
        reply->value = bytes_of(f->value);
    }
}

void model_fence(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    struct model_fence *f = fence_named(m, c->name);
    if (c->verb == PK_FENCE_CHECK || c->token == 0) {
        look(m, f, c, reply);
        return;
    }
    bool lower = f != NULL && c->token < f->token;
    if (lower && !f->shadow) {
        reply->status = PK_STALE;
        reply->token = f->token;
        return;
    }
    if (c->verb == PK_FENCE_SET && f != NULL && c->token == f->token && c->request != 0 &&
        c->request <= f->request) {
        reply->status = c->request == f->request ? PK_OK : PK_TOOOLD;
        reply->token = f->token;
        reply->request = f->request;
        return;
    }
    if (!find_room(m, c, &f, reply)) {
        return;
    }
    raise_to(m, f, c->token);
    if (lower) {
        let_through(m, f, c->token, reply);
    }
    if (c->verb == PK_FENCE_SET) {
        set_value(m, f, c);
    }
    reply->token = f->token;
    if (c->verb == PK_FENCE_GET) {
        reply->value = bytes_of(f->value);
    }
}

void model_fence_mode(struct model *m, const struct pk_command *c,
                      struct pk_effect *reply)
{
    struct model_fence *f = fence_named(m, c->name);
    bool shadow = c->flags == PK_FENCE_SHADOW;
    bool created = f == NULL;
    bool was_shadow = !created && f->shadow;
    uint64_t epoch = created ? 0 : f->epoch;
    if (was_shadow != shadow && epoch != c->epoch) {
        reply->status = PK_TOOOLD;
        reply->token = created ? 0 : f->token;
        reply->epoch = epoch;
        return;
    }
    if (!find_room(m, c, &f, reply)) {
        return;
    }
    f->shadow = shadow;
    f->epoch += was_shadow != shadow;
    reply->token = f->token;
    reply->epoch = f->epoch;
    if (created || was_shadow != shadow) {
        struct pk_effect e = {.kind = PK_EV_FENCE_MODE,
                              .name = bytes_of(f->name),
                              .token = f->token,
                              .shadow = shadow ? 1 : 0};
        pk_effects_add(&m->events, &e);
    }
}
