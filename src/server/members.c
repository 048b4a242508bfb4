/* SPDX-License-Identifier: MIT */
#include "server/members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raft/identity.h"
#include "server/address.h"

const char *pk_members_address(const char *name, const char *host, char *out)
{
    int len = snprintf(out, PK_ADDRESS_MAX, "%s@%s", name, host);
    return len < PK_ADDRESS_MAX ? NULL : "a node's name and address are too long";
}

static const char *read_one(const char *text, size_t len, struct pk_member *m)
{
    char one[PK_ADDRESS_MAX], host[PK_ADDRESS_MAX];
    uint16_t port;
    if (len >= sizeof one) {
        return "a node's name and address are too long";
    }
    memcpy(one, text, len);
    one[len] = '\0';
    char *equals = strchr(one, '=');
    if (equals == NULL) {
        return "--cluster is a list of NAME=HOST:PORT, with commas between";
    }
    *equals = '\0';
    const char *wrong = pk_node_name_wrong(one);
    if (wrong == NULL) {
        wrong = pk_address_split(equals + 1, host, sizeof host, &port);
    }
    if (wrong == NULL && port == 0) {
        wrong = "the port of a node can't be 0";
    }
    if (wrong != NULL) {
        return wrong;
    }
    m->id = 0; /* known when the nodes have met */
    m->role = PK_MEMBER_VOTER;
    return pk_members_address(one, equals + 1, m->address);
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct pk_member *)a)->address,
                  ((const struct pk_member *)b)->address);
}

const char *pk_members_read(const char *text, struct pk_member *out, size_t *n)
{
    *n = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        if (*n == PK_MEMBERS_MAX) {
            return "a cluster has 1, 3 or 5 nodes";
        }
        const char *wrong = read_one(text, len, &out[*n]);
        if (wrong != NULL) {
            return wrong;
        }
        char name[PK_ADDRESS_MAX];
        (void)pk_member_name(&out[*n], name, sizeof name);
        if (pk_member_named(out, *n, name) != NULL) {
            return "two nodes of --cluster have the same name";
        }
        ++*n;
        text += len + (text[len] == ',');
    }
    if (*n != 1 && *n != 3 && *n != 5) {
        return "a cluster has 1, 3 or 5 nodes";
    }
    qsort(out, *n, sizeof *out, by_address);
    return NULL;
}
