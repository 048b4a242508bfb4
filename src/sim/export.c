/* SPDX-License-Identifier: MIT */
#include "sim/export.h"

#include "sim/picture.h"

static void number(struct pk_prose *out, const char *key, uint64_t n)
{
    pk_prose_key(out, key);
    pk_prose_number(out, n);
}

static void text(struct pk_prose *out, const char *key, const char *value)
{
    pk_prose_key(out, key);
    pk_prose_quoted(out, value);
}

static void truth(struct pk_prose *out, const char *key, bool value)
{
    pk_prose_key(out, key);
    pk_prose_add(out, value ? "true" : "false");
}

static void who(struct pk_prose *out, const char *key, uint32_t w)
{
    struct pk_prose name = {0};
    pk_prose_who(&name, w);
    text(out, key, name.data);
    pk_prose_free(&name);
}

/* A comma before the next thing of a list, unless it is the first. */
static void next_of_list(struct pk_prose *out)
{
    if (out->data[out->len - 1] != '[') {
        pk_prose_add(out, ",\n");
    }
}

void pk_export_checks(uint32_t mask, struct pk_prose *out)
{
    bool any = false;
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        if (mask & UINT32_C(1) << i) {
            pk_prose_add(out, any ? " " : "");
            pk_prose_add(out, pk_check_name((enum pk_check)i));
            any = true;
        }
    }
    pk_prose_add(out, any ? "" : "nothing");
}

void pk_export_counts(const struct pk_checker *c, struct pk_prose *out)
{
    pk_prose_add(out, "{");
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        number(out, pk_check_name((enum pk_check)i), c->counts[i]);
    }
    pk_prose_add(out, "}");
}

void pk_export_hit(const struct pk_hit *h, const char *why, struct pk_prose *out)
{
    next_of_list(out);
    pk_prose_add(out, "{");
    text(out, "check", pk_check_name(h->check));
    number(out, "record", h->record);
    number(out, "at_us", h->at_us);
    number(out, "token", h->token);
    number(out, "other_token", h->other_token);
    text(out, "why", why);
    pk_prose_add(out, "}");
}

static void add_settings(struct pk_prose *out, const struct pk_script *s)
{
    const struct pk_world_config *c = &s->config;
    text(out, "title", s->title);
    text(out, "flavour", pk_flavour_name(c->flavour));
    text(out, "fence", pk_protection_name(c->fence));
    number(out, "clients", c->clients);
    number(out, "ttl_us", c->ttl_us);
    truth(out, "checkpoint", c->checkpoint);
    number(out, "seed", c->seed);
    number(out, "mistakes", c->mistakes);
    number(out, "until_us", s->until_us);
    struct pk_prose script = {0};
    pk_script_write(s, &script);
    text(out, "script", script.data);
    pk_prose_free(&script);
}

static void add_view(struct pk_prose *out, const struct pk_world *w)
{
    struct pk_world_view v;
    pk_world_view(w, &v);
    pk_prose_key(out, "end");
    pk_prose_add(out, "{");
    if (v.holder >= 0) {
        who(out, "holder", (uint32_t)v.holder);
        number(out, "token", v.holder_token);
        number(out, "left_us", v.left_us);
    }
    number(out, "waiting", v.waiting);
    number(out, "counter", v.counter);
    number(out, "fence", v.fence);
    number(out, "accepted", v.accepted);
    number(out, "rejected", v.rejected);
    pk_prose_add(out, "}");
}

static void add_record(struct pk_prose *out, const struct pk_record *r)
{
    next_of_list(out);
    pk_prose_add(out, "{");
    number(out, "at_us", r->at_us);
    text(out, "kind", pk_record_name(r->kind));
    who(out, "who", r->who);
    number(out, "peer", r->peer);
    number(out, "code", r->code);
    number(out, "section", r->section);
    number(out, "token", r->token);
    pk_prose_key(out, "arg");
    if (r->kind == PK_REC_JUMPED || r->kind == PK_REC_DRIFTS) {
        pk_prose_signed(out, (int64_t)r->arg);
    } else if (r->kind == PK_REC_DIGEST) { /* beyond what JSON's numbers can be */
        pk_prose_add(out, "\"");
        pk_prose_hex(out, r->arg);
        pk_prose_add(out, "\"");
    } else {
        pk_prose_number(out, r->arg);
    }
    pk_prose_add(out, "}");
}

void pk_export_json(const struct pk_script *s, const struct pk_world *w,
                    const struct pk_checker *c, struct pk_prose *out)
{
    uint32_t count;
    const struct pk_record *trace = pk_world_trace(w, &count);
    pk_prose_add(out, "{");
    number(out, "version", 1);
    add_settings(out, s);
    struct pk_prose broken = {0};
    pk_export_checks(pk_checker_mask(c), &broken);
    text(out, "broken", broken.data);
    pk_prose_free(&broken);
    pk_prose_key(out, "counts");
    pk_export_counts(c, out);
    pk_prose_key(out, "digest");
    pk_prose_add(out, "\"");
    pk_prose_hex(out, pk_world_digest(w));
    pk_prose_add(out, "\"");
    add_view(out, w);
    pk_prose_key(out, "hits");
    pk_prose_add(out, "[");
    for (uint32_t i = 0; i < c->n_hits; i++) {
        struct pk_prose why = {0};
        pk_hit_explain(&c->hits[i], &why);
        pk_export_hit(&c->hits[i], why.data, out);
        pk_prose_free(&why);
    }
    pk_prose_add(out, "]");
    pk_prose_key(out, "trace");
    pk_prose_add(out, "[");
    for (uint32_t i = 0; i < count; i++) {
        add_record(out, &trace[i]);
    }
    pk_prose_add(out, "]}\n");
}

void pk_export_picture(const struct pk_script *s, const struct pk_world *w,
                       const struct pk_checker *c, uint32_t width, struct pk_prose *out)
{
    struct pk_picture p = {.clients = s->config.clients,
                           .to_us = s->until_us,
                           .width = width,
                           .hits = c->hits,
                           .n_hits = c->n_hits,
                           .title = s->title,
                           .styled = true};
    p.nodes = s->config.flavour == PK_FLAVOUR_REDLOCK ? PK_NODES_MAX : 0;
    p.trace = pk_world_trace(w, &p.count);
    pk_picture_draw(&p, out);
}
