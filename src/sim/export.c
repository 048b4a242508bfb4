/* SPDX-License-Identifier: MIT */
#include "sim/export.h"

#include "sim/picture.h"

static void truth(struct pk_prose *out, const char *key, bool value)
{
    pk_prose_key(out, key);
    pk_prose_add(out, value ? "true" : "false");
}

static void who(struct pk_prose *out, const char *key, uint32_t w)
{
    struct pk_prose name = {0};
    pk_prose_who(&name, w);
    pk_prose_key_text(out, key, name.data);
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
        pk_prose_key_number(out, pk_check_name((enum pk_check)i), c->counts[i]);
    }
    pk_prose_add(out, "}");
}

void pk_export_hit(const struct pk_hit *h, const char *why, struct pk_prose *out)
{
    next_of_list(out);
    pk_prose_add(out, "{");
    pk_prose_key_text(out, "check", pk_check_name(h->check));
    pk_prose_key_number(out, "record", h->record);
    pk_prose_key_number(out, "at_us", h->at_us);
    pk_prose_key_number(out, "token", h->token);
    pk_prose_key_number(out, "other_token", h->other_token);
    pk_prose_key_text(out, "why", why);
    pk_prose_add(out, "}");
}

static void add_settings(struct pk_prose *out, const struct pk_script *s)
{
    const struct pk_world_config *c = &s->config;
    pk_prose_key_text(out, "title", s->title);
    pk_prose_key_text(out, "flavour", pk_flavour_name(c->flavour));
    pk_prose_key_text(out, "fence", pk_protection_name(c->fence));
    pk_prose_key_number(out, "clients", c->clients);
    pk_prose_key_number(out, "ttl_us", c->ttl_us);
    truth(out, "checkpoint", c->checkpoint);
    pk_prose_key_number(out, "seed", c->seed);
    pk_prose_key_number(out, "mistakes", c->mistakes);
    pk_prose_key_number(out, "until_us", s->until_us);
    struct pk_prose script = {0};
    pk_script_write(s, &script);
    pk_prose_key_text(out, "script", script.data);
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
        pk_prose_key_number(out, "token", v.holder_token);
        pk_prose_key_number(out, "left_us", v.left_us);
    }
    pk_prose_key_number(out, "waiting", v.waiting);
    pk_prose_key_number(out, "counter", v.counter);
    pk_prose_key_number(out, "fence", v.fence);
    pk_prose_key_number(out, "accepted", v.accepted);
    pk_prose_key_number(out, "rejected", v.rejected);
    pk_prose_add(out, "}");
}

static void add_record(struct pk_prose *out, const struct pk_record *r)
{
    next_of_list(out);
    pk_prose_add(out, "{");
    pk_prose_key_number(out, "at_us", r->at_us);
    pk_prose_key_text(out, "kind", pk_record_name(r->kind));
    who(out, "who", r->who);
    pk_prose_key_number(out, "peer", r->peer);
    pk_prose_key_number(out, "code", r->code);
    pk_prose_key_number(out, "section", r->section);
    pk_prose_key_number(out, "token", r->token);
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
    pk_prose_key_number(out, "version", 1);
    add_settings(out, s);
    struct pk_prose broken = {0};
    pk_export_checks(pk_checker_mask(c), &broken);
    pk_prose_key_text(out, "broken", broken.data);
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
