/* SPDX-License-Identifier: MIT */
/*
 * Intrusive lists in order of arrival. A link is in one list or in none (zeroed); so
 * taking out one that is in none is harmless.
 */
#ifndef PICKET_GATE_LIST_H
#define PICKET_GATE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct pk_list_link {
    struct pk_list_link *next, *prev;
};

struct pk_list {
    struct pk_list_link head; /* a ring; both links of an empty one point to itself */
};

static inline void pk_list_init(struct pk_list *l)
{
    l->head.next = l->head.prev = &l->head;
}

static inline bool pk_list_empty(const struct pk_list *l)
{
    return l->head.next == &l->head;
}

static inline void pk_list_push(struct pk_list *l, struct pk_list_link *link)
{
    link->next = &l->head;
    link->prev = l->head.prev;
    link->prev->next = link;
    l->head.prev = link;
}

static inline void pk_list_remove(struct pk_list_link *link)
{
    if (link->next != NULL) {
        link->next->prev = link->prev;
        link->prev->next = link->next;
        link->next = link->prev = NULL;
    }
}

static inline bool pk_list_linked(const struct pk_list_link *link)
{
    return link->next != NULL;
}

/* The first link, or NULL. */
static inline struct pk_list_link *pk_list_first(const struct pk_list *l)
{
    return pk_list_empty(l) ? NULL : l->head.next;
}

static inline struct pk_list_link *pk_list_last(const struct pk_list *l)
{
    return pk_list_empty(l) ? NULL : l->head.prev;
}

/* The one after `link`, or NULL. */
static inline struct pk_list_link *pk_list_next(const struct pk_list *l,
                                                const struct pk_list_link *link)
{
    return link->next == &l->head ? NULL : link->next;
}

#endif
