/* SPDX-License-Identifier: MIT */
/* What operators look at: /metrics, /healthz, /readyz, /fences. */
#include <stdio.h>

#include "gate/inside.h"
#include "gate/say.h"

enum { FENCES_SHOWN = 1000 };

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* ---- metrics ---- */

static void family(struct pk_resp_out *out, const char *name, const char *type,
                   const char *help)
{
    char text[320];
    int n = snprintf(text, sizeof text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                     type);
    pk_resp_raw(out, text, (size_t)n);
}

/* One line; `label` may be empty. */
static void sample(struct pk_resp_out *out, const char *name, const char *label,
                   uint64_t v)
{
    char text[200];
    int n =
        snprintf(text, sizeof text, "%s%s %llu\n", name, label, (unsigned long long)v);
    pk_resp_raw(out, text, (size_t)n);
}

static void labelled(struct pk_resp_out *out, const char *name, const char *key,
                     const char *value, uint64_t v)
{
    char label[64];
    (void)snprintf(label, sizeof label, "{%s=\"%s\"}", key, value);
    sample(out, name, label, v);
}

static void write_requests(const struct pk_gate *g, struct pk_resp_out *out)
{
    static const char requests[] = "picket_gate_requests_total";
    static const char shadows[] = "picket_gate_shadow_total";
    family(out, requests, "counter", "Requests, by how they ended.");
    for (size_t i = 0; i < PK_OUTCOME_COUNT; i++) {
        labelled(out, requests, "outcome", pk_outcome_name((enum pk_outcome)i),
                 g->counts.outcomes[i]);
    }
    family(out, shadows, "counter",
           "Requests that were let through, by what else would have been done to them.");
    for (size_t i = 0; i < PK_SHADOW_COUNT; i++) {
        labelled(out, shadows, "would", pk_shadow_name((enum pk_shadow)i),
                 g->counts.shadows[i]);
    }
}

static void write_metrics(struct pk_gate *g, struct pk_resp_out *out)
{
    const struct pk_counts *c = &g->counts;
    struct pk_admit_counts a = pk_admit_counts(g->admit);
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"picket_gate_standing", "gauge", "1 while this gate lets requests through.",
         pk_stand_stands(&g->stand)},
        {"picket_gate_in_flight", "gauge", "Requests with a token that are upstream.",
         a.flying},
        {"picket_gate_waiting", "gauge", "Requests that wait for lower tokens to end.",
         a.waiting},
        {"picket_gate_resources", "gauge", "Resources whose fence is remembered.",
         a.resources},
        {"picket_gate_exchanges", "gauge", "Requests under way, of any kind.",
         g->n_exchanges},
        {"picket_gate_connections", "gauge", "Client connections.", g->n_clients},
        {"picket_gate_upstream_connections", "gauge", "Connections to the upstream.",
         g->n_upstreams},
        {"picket_gate_fence_raises_total", "counter", "Times a fence was seen to grow.",
         a.raises},
        {"picket_gate_claims_total", "counter", "Claims made at the store.", c->claims},
        {"picket_gate_claims_failed_total", "counter",
         "Claims that the store did not answer.", c->claims_failed},
        {"picket_gate_cut_offs_total", "counter",
         "Requests that were cut off for a higher token.", c->cut_offs},
        {"picket_gate_unrecorded_total", "counter",
         "Outcomes of idempotency keys that the store did not take.", c->unkept},
        {"picket_gate_connections_total", "counter", "Connections accepted.",
         c->connections},
        {"picket_gate_connections_refused_total", "counter",
         "Connections above the limit.", c->refused_connections},
        {"picket_gate_upstream_connects_total", "counter",
         "Connections made to the upstream.", c->upstream_connects},
        {"picket_gate_upstream_errors_total", "counter",
         "Connections to the upstream that failed, and answers that did not come.",
         c->upstream_errors},
        {"picket_gate_upstream_retries_total", "counter",
         "Requests sent again because an idle connection was closed under them.",
         c->upstream_retries},
    };
    write_requests(g, out);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        family(out, rows[i].name, rows[i].type, rows[i].help);
        sample(out, rows[i].name, "", rows[i].value);
    }
}

/* ---- fences ---- */

static void write_fence(const struct pk_admit_row *row, struct pk_resp_out *out)
{
    pk_say(out, "{\"resource\":");
    pk_say_string(out, row->name);
    pk_say(out, ",\"fence\":");
    pk_say_number(out, row->fence);
    pk_say(out, ",\"in_flight\":");
    pk_say_number(out, row->flying);
    pk_say(out, ",\"older_in_flight\":");
    pk_say_number(out, row->older);
    pk_say(out, ",\"waiting\":");
    pk_say_number(out, row->waiting);
    pk_say(out, "}");
}

static void write_fences(const struct pk_gate *g, struct pk_resp_out *out)
{
    struct pk_admit_row row = {.name = pk_bytes("", 0)};
    pk_say(out, "{\"fences\":[");
    for (int i = 0; i < FENCES_SHOWN && pk_admit_show(g->admit, row.name, &row); i++) {
        pk_say(out, i == 0 ? "" : ",");
        write_fence(&row, out);
    }
    pk_say(out, "]}\n");
}

void pk_gate_page(void *ctx, struct pk_bytes path, struct pk_bytes query,
                  struct pk_http_answer *out)
{
    struct pk_gate *g = ctx;
    (void)query;
    if (pk_bytes_equal(path, pk_text("/metrics"))) {
        out->type = METRICS_TYPE;
        write_metrics(g, &out->body);
    } else if (pk_bytes_equal(path, pk_text("/healthz"))) {
        pk_say(&out->body, "ok\n");
    } else if (pk_bytes_equal(path, pk_text("/readyz"))) {
        bool ready = pk_stand_stands(&g->stand) && !g->draining;
        out->status = ready ? 200 : 503;
        pk_say(&out->body, ready         ? "ready\n"
                           : g->draining ? "not ready: being stopped\n"
                                         : "not ready: another gate stands\n");
    } else if (pk_bytes_equal(path, pk_text("/fences"))) {
        out->type = "application/json";
        write_fences(g, &out->body);
    } else {
        out->status = 404;
        pk_say(&out->body,
               "nothing here; there are /metrics, /healthz, /readyz, /fences\n");
    }
}
