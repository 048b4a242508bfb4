/* SPDX-License-Identifier: MIT */
#include "drivers/redis_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"

/* ---- URLs ---- */

/* The option's value; NULL if it isn't given, which is not the same as an empty one. */
static const char *given(const struct pk_url *u, const char *name)
{
    const char *value = NULL;
    for (uint32_t i = 0; i < u->n_options; i++) {
        value = strcmp(u->options[i].name, name) == 0 ? u->options[i].value : value;
    }
    return value;
}

enum picket_status pk_redis_settings(const struct pk_url *u, const char *where,
                                     char prefix[PK_REDIS_PREFIX_MAX + 1])
{
    const char *wanted = given(u, "prefix");
    wanted = wanted != NULL ? wanted : "picket:";
    if (strlen(wanted) > PK_REDIS_PREFIX_MAX) {
        return pk_fail(PICKET_BADARG, "%s: a prefix has at most %d bytes", where,
                       PK_REDIS_PREFIX_MAX);
    }
    if (u->path[strspn(u->path, "0123456789")] != '\0' || strlen(u->path) > 5) {
        return pk_fail(PICKET_BADARG,
                       "%s: Redis numbers its databases; a number follows the last /",
                       where);
    }
    (void)snprintf(prefix, PK_REDIS_PREFIX_MAX + 1, "%s", wanted);
    return PICKET_OK;
}

/* ---- settings of the server ---- */

enum { SETTING_MAX = 128 };

/* A setting as the server has it; false: it does not say. */
static bool setting(struct pk_redis_link *l, const char *name, uint64_t until_ms,
                    char out[SETTING_MAX])
{
    struct pk_redis_words w = {.count = 0};
    redisReply *reply = NULL;
    pk_redis_add_text(&w, "CONFIG");
    pk_redis_add_text(&w, "GET");
    pk_redis_add_text(&w, name);
    out[0] = '\0';
    enum picket_status s = pk_redis_command(l, &w, false, until_ms, &reply);
    bool told = s == PICKET_OK && reply->type == REDIS_REPLY_ARRAY &&
                reply->elements == 2 && reply->element[1]->str != NULL;
    if (told) {
        (void)snprintf(out, SETTING_MAX, "%s", reply->element[1]->str);
    }
    freeReplyObject(reply);
    return told;
}

static void find_version(const char *info, const char *where, struct pk_findings *out)
{
    struct pk_bytes version = pk_redis_info(info, "redis_version");
    pk_findings_add(out, PK_FINE, "version", "%s is Redis %.*s", where, (int)version.len,
                    version.data);
    pk_findings_add(out, PK_NOTE, "wall-clock",
                    "%s: keys expire by the server's wall clock; let it be slewed, never "
                    "set",
                    where);
}

static void find_replicas(struct pk_redis_link *l, const char *info, uint64_t until_ms,
                          struct pk_findings *out)
{
    char least[SETTING_MAX];
    struct pk_bytes replicas = pk_redis_info(info, "connected_slaves");
    if (!pk_bytes_equal(pk_redis_info(info, "role"), pk_text("master"))) {
        pk_findings_add(out, PK_UNSAFE, "replica",
                        "%s is a replica, which can't be written to; name its master",
                        l->where);
        return;
    }
    if (replicas.len == 0 || pk_bytes_equal(replicas, pk_text("0"))) {
        pk_findings_add(out, PK_FINE, "no-replicas",
                        "%s has no replicas, so none can be promoted without the locks",
                        l->where);
        return;
    }
    bool told = setting(l, "min-replicas-to-write", until_ms, least);
    pk_findings_add(out, PK_UNSAFE, "async-replicas",
                    "%s has %.*s replicas, which follow asynchronously "
                    "(min-replicas-to-write is %s): one that is promoted may not know a "
                    "lock, and two will hold it",
                    l->where, (int)replicas.len, replicas.data, told ? least : "hidden");
}

static void find_durability(struct pk_redis_link *l, uint64_t until_ms,
                            struct pk_findings *out)
{
    char aof[SETTING_MAX], sync[SETTING_MAX], save[SETTING_MAX];
    if (!setting(l, "appendonly", until_ms, aof) ||
        !setting(l, "appendfsync", until_ms, sync)) {
        pk_findings_add(out, PK_NOTE, "settings-hidden",
                        "%s does not show its settings (CONFIG GET), so they were not "
                        "looked at",
                        l->where);
        return;
    }
    if (strcmp(aof, "yes") != 0) {
        (void)setting(l, "save", until_ms, save);
        pk_findings_add(out, PK_UNSAFE, "no-aof",
                        "%s: appendonly is off, so a restart %s: locks are granted "
                        "twice and tokens go back; set appendonly yes and appendfsync "
                        "always",
                        l->where,
                        save[0] == '\0' ? "forgets everything"
                                        : "goes back to the last snapshot");
    } else if (strcmp(sync, "always") != 0) {
        pk_findings_add(out, PK_UNSAFE, "aof-not-synced",
                        "%s: appendfsync is %s, so a power cut can take back grants and "
                        "tokens; set appendfsync always",
                        l->where, sync);
    } else {
        pk_findings_add(out, PK_FINE, "aof", "%s syncs each grant to disk", l->where);
    }
}

static void find_eviction(struct pk_redis_link *l, uint64_t until_ms,
                          struct pk_findings *out)
{
    char policy[SETTING_MAX], most[SETTING_MAX];
    if (!setting(l, "maxmemory-policy", until_ms, policy) ||
        !setting(l, "maxmemory", until_ms, most)) {
        return; /* told above */
    }
    bool evicts = strcmp(policy, "noeviction") != 0;
    bool limited = strcmp(most, "0") != 0;
    pk_findings_add(
        out,
        !evicts   ? PK_FINE
        : limited ? PK_UNSAFE
                  : PK_NOTE,
        evicts ? "eviction" : "no-eviction",
        evicts ? "%s: maxmemory-policy is %s, which can drop locks when "
                 "memory is short; set noeviction%s"
               : "%s: maxmemory-policy is %s: no lock is dropped for memory%s",
        l->where, policy, evicts && !limited ? " (there is no maxmemory now)" : "");
}

enum picket_status pk_redis_examine(struct pk_redis_link *l, struct pk_findings *out,
                                    uint64_t until_ms)
{
    struct pk_redis_words w = {.count = 0};
    redisReply *reply = NULL;
    pk_redis_add_text(&w, "INFO");
    enum picket_status s = pk_redis_command(l, &w, false, until_ms, &reply);
    if (s == PICKET_OK && reply->str != NULL) {
        find_version(reply->str, l->where, out);
        find_replicas(l, reply->str, until_ms, out);
    } else if (s == PICKET_DENIED) {
        pk_findings_add(out, PK_NOTE, "info-hidden",
                        "%s does not show what it is (INFO), so that was not looked at",
                        l->where);
    }
    freeReplyObject(reply);
    if (s == PICKET_OK || s == PICKET_DENIED) {
        find_durability(l, until_ms, out);
        find_eviction(l, until_ms, out);
        s = PICKET_OK;
    }
    return s;
}
