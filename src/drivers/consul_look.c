/* SPDX-License-Identifier: MIT */
/* Looking at Consul: who holds what, and how it is set up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "drivers/consul.h"

/* ---- locks ---- */

static void see(const struct pk_consul *c, const json_t *entry, const char *name,
                bool whole_name, struct pk_scan *scan)
{
    char found[PK_NAME_MAX + 1];
    struct pk_consul_key k = {0};
    const char *key = json_string_value(json_object_get(entry, "Key"));
    bool wanted =
        key != NULL && pk_consul_lock_name(c, key, found) &&
        (whole_name ? strcmp(found, name) == 0 : strncmp(found, name, strlen(name)) == 0);
    if (!wanted || !pk_consul_key_parse(entry, &k) || k.session[0] == '\0') {
        pk_consul_key_free(&k);
        return;
    }
    uint64_t request = 0;
    uint64_t token = 0;
    struct pk_sight seen = {.name = pk_text(found), .held = true};
    (void)pk_consul_key_claim(&k, &request, &token, &seen.card);
    seen.token = token;
    seen.order = k.index;
    pk_bridge_see(scan, &seen);
    pk_consul_key_free(&k);
}

enum picket_status pk_consul_scan(void *own, const char *name, bool whole_name,
                                  struct pk_scan *scan, uint64_t until_ms)
{
    struct pk_consul *c = own;
    char key[PK_CONSUL_KEY_ROOM];
    char path[PK_CONSUL_URL_ROOM];
    if (whole_name) {
        pk_consul_lock_key(c, name, key);
    } else {
        (void)snprintf(key, sizeof key, "%s/", c->prefix);
    }
    pk_consul_path(path, key, whole_name ? "?consistent" : "?consistent&recurse");
    const struct pk_consul_ask a = {.method = "GET", .path = path};
    enum picket_status s = pk_consul_ask(c, &c->call, &a, until_ms);
    if (s != PICKET_OK || c->call.status == 404) {
        return s;
    }
    json_t *list = pk_consul_json(c, &c->call, &s);
    for (size_t i = 0; i < json_array_size(list); i++) {
        see(c, json_array_get(list, i), name, whole_name, scan);
    }
    json_decref(list);
    return s;
}

/* ---- settings ---- */

/* Asks for something that a token may not be allowed to see; NULL then. */
static json_t *peek(struct pk_consul *c, const char *path, const char *right,
                    struct pk_findings *out, enum picket_status *s, uint64_t until_ms)
{
    const struct pk_consul_ask a = {.method = "GET", .path = path};
    *s = pk_consul_ask(c, &c->call, &a, until_ms);
    if (*s == PICKET_DENIED) {
        pk_findings_add(out, PK_NOTE, "settings-hidden",
                        "/v1%s is not shown to this token; with %s more could be said",
                        path, right);
        *s = PICKET_OK;
        return NULL;
    }
    return *s == PICKET_OK && c->call.status == 200 ? pk_consul_json(c, &c->call, s)
                                                    : NULL;
}

static void judge_agent(const json_t *self, struct pk_findings *out)
{
    const json_t *config = json_object_get(self, "Config");
    const json_t *debug = json_object_get(self, "DebugConfig");
    const char *version = json_string_value(json_object_get(config, "Version"));
    pk_findings_add(out, PK_FINE, "version", "Consul %s, asked through a %s",
                    version != NULL ? version : "of unknown version",
                    json_is_true(json_object_get(config, "Server")) ? "server"
                                                                    : "client agent");
    const json_t *acl = json_object_get(debug, "ACLsEnabled");
    if (json_is_true(acl)) {
        pk_findings_add(out, PK_FINE, "auth", "access control is on");
    } else if (json_is_false(acl)) {
        pk_findings_add(out, PK_NOTE, "no-auth",
                        "access control is off: whoever reaches the port can take or "
                        "break every lock; set acl.enabled and use a token");
    }
}

static void judge_servers(const json_t *raft, struct pk_findings *out)
{
    const json_t *servers = json_object_get(raft, "Servers");
    size_t voters = 0;
    for (size_t i = 0; i < json_array_size(servers); i++) {
        voters += json_is_true(json_object_get(json_array_get(servers, i), "Voter"));
    }
    if (voters == 1) {
        pk_findings_add(out, PK_NOTE, "single-node",
                        "one server: while it is down nobody gets a lock, and its disk "
                        "is the only copy; run three");
    } else if (voters % 2 == 0) {
        pk_findings_add(out, PK_NOTE, "even-nodes",
                        "%zu voting servers survive no more losses than %zu would; add "
                        "or remove one",
                        voters, voters - 1);
    } else {
        pk_findings_add(out, PK_FINE, "nodes",
                        "%zu voting servers: any %zu of them may die without a loss",
                        voters, (voters - 1) / 2);
    }
}

enum picket_status pk_consul_examine(void *own, struct pk_findings *out,
                                     uint64_t until_ms)
{
    struct pk_consul *c = own;
    enum picket_status s = PICKET_OK;
    json_t *self = peek(c, "/agent/self", "agent:read", out, &s, until_ms);
    if (self != NULL) {
        judge_agent(self, out);
        json_decref(self);
    }
    if (s != PICKET_OK) {
        return s;
    }
    json_t *raft =
        peek(c, "/operator/raft/configuration", "operator:read", out, &s, until_ms);
    if (raft != NULL) {
        judge_servers(raft, out);
        json_decref(raft);
    }
    if (s == PICKET_OK) {
        pk_findings_add(out, PK_NOTE, "least-ttl",
                        "a session lives for one to two times its TTL, and 10 s at "
                        "least: what a dead holder had is free after 10 to 20 s at the "
                        "earliest");
    }
    return s;
}
