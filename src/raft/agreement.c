/* SPDX-License-Identifier: MIT */
#include "raft/agreement.h"

#include <string.h>

/* The place of a node's marks, or the first free one if it has none yet. When all are
 * taken, by nodes that are long gone, all are forgotten. */
static size_t place_of(struct pk_agreement *a, uint64_t id)
{
    for (size_t i = 0; i < PK_AGREEMENT_NODES; i++) {
        if (a->nodes[i].id == id || a->nodes[i].id == 0) {
            return i;
        }
    }
    memset(a, 0, sizeof *a);
    return 0;
}

void pk_agreement_hear(struct pk_agreement *a, uint64_t id, struct pk_mark mark)
{
    size_t i = place_of(a, id);
    a->nodes[i].id = id;
    a->nodes[i].marks[a->nodes[i].next] = mark;
    a->nodes[i].next = (a->nodes[i].next + 1) % PK_AGREEMENT_MARKS;
}

/* NULL: the node has not told its digest of that entry. */
static const struct pk_mark *find(const struct pk_agreement *a, uint64_t id,
                                  uint64_t index)
{
    for (size_t i = 0; i < PK_AGREEMENT_NODES; i++) {
        for (size_t k = 0; k < PK_AGREEMENT_MARKS && a->nodes[i].id == id; k++) {
            if (a->nodes[i].marks[k].index == index) {
                return &a->nodes[i].marks[k];
            }
        }
    }
    return NULL;
}

bool pk_agreement_holds(const struct pk_agreement *a, uint64_t self, uint64_t index,
                        const uint64_t *voters, size_t n)
{
    const struct pk_mark *own = find(a, self, index);
    size_t against = 0;
    for (size_t i = 0; i < n && own != NULL; i++) {
        const struct pk_mark *m = find(a, voters[i], index);
        against += m != NULL && m->digest != own->digest;
    }
    size_t may_agree = n - against;
    return n == 0 || against == 0 || may_agree > n / 2;
}
