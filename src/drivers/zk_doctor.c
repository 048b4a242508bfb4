/* SPDX-License-Identifier: MIT */
/*
 * What `picket doctor` finds about a ZooKeeper. Its servers are asked with four-letter
 * words, most of which are switched off unless somebody wants them; `srvr` is the one
 * that is on by itself. Who belongs to the ensemble stands in a node of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "drivers/zk_inside.h"
#include "host/clock.h"

enum {
    DEFAULT_TTL_MS = 10000,     /* as client.c has it */
    LONGEST_MS = PK_TTL_MAX_MS, /* asked for, so that a server says what it allows */
};

/* The rest of the line that begins with `name`, in `out`; false: there is none. */
static bool line_of(const char *text, const char *name, char *out, size_t size)
{
    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += at[0] == '\n';
        size_t n = strlen(name);
        if (strncmp(at, name, n) == 0) {
            snprintf(out, size, "%.*s", (int)strcspn(at + n, ",\r\n"), at + n);
            return true;
        }
        if (strchr(at, '\n') == NULL) {
            break;
        }
    }
    return false;
}

/* True for versions that have no container nodes. */
static bool too_old(const char *version)
{
    int numbers[3] = {0};
    for (int i = 0; i < 3 && *version >= '0' && *version <= '9'; i++) {
        char *end;
        numbers[i] = (int)strtol(version, &end, 10);
        version = *end == '.' ? end + 1 : end;
    }
    int all = (numbers[0] * 1000 + numbers[1]) * 1000 + numbers[2];
    return all < 3005003;
}

static void examine_server(const struct pk_place *p, struct pk_findings *out,
                           uint64_t until_ms)
{
    char answer[2048], version[32], mode[32];
    enum pk_zk_kind kind = pk_zk_four(p, "srvr", until_ms, answer, sizeof answer);
    if (kind == PK_ZK_ABSENT || kind == PK_ZK_SILENT) {
        pk_findings_add(out, PK_NOTE, "nodes-away", "%s does not answer", p->text);
    } else if (kind == PK_ZK_OTHER) {
        pk_findings_add(out, PK_NOTE, "no-zookeeper", "%s is something else", p->text);
    } else if (kind == PK_ZK_IDLE) {
        pk_findings_add(out, PK_NOTE, "no-leader",
                        "%s serves nobody: it does not see a majority of its ensemble",
                        p->text);
    } else if (line_of(answer, "Zookeeper version: ", version, sizeof version) &&
               line_of(answer, "Mode: ", mode, sizeof mode)) {
        version[strcspn(version, "-")] = '\0';
        pk_findings_add(out, too_old(version) ? PK_UNSAFE : PK_FINE, "version",
                        "%s is ZooKeeper %s (%s)%s", p->text, version, mode,
                        too_old(version) ? "; 3.5.3 or newer is needed" : "");
        if (strcmp(mode, "read-only") == 0) {
            pk_findings_add(out, PK_NOTE, "read-only",
                            "%s has lost its majority and only answers questions",
                            p->text);
        }
    } else {
        pk_findings_add(out, PK_NOTE, "settings-hidden",
                        "%s does not answer `srvr`; put it into 4lw.commands.whitelist "
                        "to have version and mode looked at",
                        p->text);
    }
}

/* Counts the lines "server.N=...:ROLE;..." of the ensemble's own node. */
static void count_members(const char *config, int *voters, int *observers)
{
    *voters = *observers = 0;
    for (const char *at = config; at != NULL && *at != '\0';) {
        const char *end = at + strcspn(at, "\n");
        const char *watches = strstr(at, ":observer");
        if (strncmp(at, "server.", 7) == 0) {
            bool observer = watches != NULL && watches < end;
            *voters += !observer;
            *observers += observer;
        }
        at = *end == '\0' ? end : end + 1;
    }
}

static void examine_members(struct pk_zk_call *c, struct pk_findings *out)
{
    int voters = 0, observers = 0;
    int rc = pk_zk_get(c, "/zookeeper/config");
    if (rc != ZOK) {
        pk_findings_add(out, PK_NOTE, "settings-hidden",
                        "/zookeeper/config can't be read (%s), so nobody knows how many "
                        "servers there are",
                        zerror(rc));
        return;
    }
    count_members(c->a->text, &voters, &observers);
    if (voters <= 1) {
        pk_findings_add(out, PK_NOTE, "single-node",
                        "one server: when it is away nobody gets a lock, and with its "
                        "disk the locks and the order of tokens are gone; have three");
    } else if (voters % 2 == 0) {
        pk_findings_add(out, PK_NOTE, "even-nodes",
                        "%d voting servers: %d may fail, as of %d; have an odd number",
                        voters, (voters - 1) / 2, voters - 1);
    } else {
        pk_findings_add(out, PK_FINE, "nodes", "%d voting servers: %d may fail", voters,
                        voters / 2);
    }
    if (observers > 0) {
        pk_findings_add(out, PK_NOTE, "observers",
                        "%d observers: they answer, but don't help to keep a majority",
                        observers);
    }
}

/* What sessions it allows; the longest by asking for one. */
static enum picket_status examine_limits(struct pk_zk *z, struct pk_findings *out,
                                         uint64_t until_ms)
{
    struct pk_zk_session *s = NULL;
    enum picket_status status = pk_zk_begin(z, 0, LONGEST_MS, &s);
    if (status == PICKET_OK) {
        status = pk_zk_ready(s, until_ms);
        unsigned long long most = pk_zk_timeout(s);
        unsigned long long ttl = pk_zk_believable(most);
        pk_zk_end(s);
        if (status == PICKET_OK) {
            pk_findings_add(out, ttl >= DEFAULT_TTL_MS ? PK_FINE : PK_NOTE, "longest-ttl",
                            "sessions last at most %llu ms, so TTLs at most %llu ms; "
                            "longer ones are cut to that (maxSessionTimeout)",
                            most, ttl);
        }
    }
    char answer[2048], least[32];
    for (uint32_t i = 0; status == PICKET_OK && i < z->places.count; i++) {
        enum pk_zk_kind kind =
            pk_zk_four(&z->places.list[i], "conf", until_ms, answer, sizeof answer);
        if (kind == PK_ZK_SERVES &&
            line_of(answer, "minSessionTimeout=", least, sizeof least)) {
            pk_findings_add(out, PK_NOTE, "least-ttl",
                            "sessions last at least %s ms: with a TTL below two thirds "
                            "of that, a dead holder's lock stays closed for longer",
                            least);
            break;
        }
    }
    return status;
}

static void examine_access(const struct pk_zk *z, struct pk_findings *out)
{
    if (z->url.user[0] == '\0') {
        pk_findings_add(out, PK_NOTE, "no-auth",
                        "no user in the URL: whoever reaches the servers can delete our "
                        "nodes; with zk://USER:PASSWORD@... only that user can");
    } else {
        pk_findings_add(out, PK_FINE, "auth", "our nodes are for %s alone", z->url.user);
    }
}

enum picket_status pk_zk_examine(void *own, struct pk_findings *out, uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_call c = {NULL, until_ms, NULL};
    for (uint32_t i = 0; i < z->places.count; i++) {
        examine_server(&z->places.list[i], out, until_ms);
    }
    enum picket_status s = pk_zk_any(z, until_ms, &c.session);
    if (s != PICKET_OK) {
        return s;
    }
    examine_members(&c, out);
    pk_zk_done(&c);
    examine_access(z, out);
    return examine_limits(z, out, until_ms);
}
