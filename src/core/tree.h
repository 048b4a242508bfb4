/* SPDX-License-Identifier: MIT */
/*
 * The core's one container: an intrusive balanced (AVL) tree.
 *
 * One container serves names, leases, holders, queues and deadlines, because each of them
 * is needed in order: listing and snapshots walk names, a queue is a walk by arrival, the
 * next deadline is the first node. Every operation is O(log n) in the worst case, nothing
 * is allocated, and no order depends on an address or a hash, so replicas can't differ
 * (P10: no client can craft keys that make it slow).
 *
 * The node lives inside the object it sorts; PK_OWNER gets back from node to object. A
 * node is in at most one tree and must not be copied or freed while it is in.
 */
#ifndef PICKET_CORE_TREE_H
#define PICKET_CORE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pk_node {
    struct pk_node *child[2];
    uintptr_t up; /* the parent, with balance + 1 (0, 1 or 2) in the two lowest bits */
};

struct pk_tree {
    struct pk_node *root; /* NULL: empty; a zeroed tree is an empty one */
};

/* Orders `key` against the key of `node`: negative, zero or positive, like memcmp. */
typedef int pk_tree_order(const void *key, const struct pk_node *node);

#define PK_OWNER(node, type, member)                                                     \
    ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* The node equal to key, or NULL. */
struct pk_node *pk_tree_find(const struct pk_tree *t, const void *key,
                             pk_tree_order *order);
/* The first node not less than key, or NULL. */
struct pk_node *pk_tree_seek(const struct pk_tree *t, const void *key,
                             pk_tree_order *order);
/* Puts `node` in its place; `key` is its own key. False, and nothing done, when an equal
 * one is there already. */
bool pk_tree_insert(struct pk_tree *t, struct pk_node *node, const void *key,
                    pk_tree_order *order);
/* Takes out a node that is in. */
void pk_tree_erase(struct pk_tree *t, struct pk_node *node);

/* In order walk: first, then next until NULL. Erasing the node just left is fine. */
struct pk_node *pk_tree_first(const struct pk_tree *t);
struct pk_node *pk_tree_next(const struct pk_node *node);
struct pk_node *pk_tree_last(const struct pk_tree *t);

/* True when `node` is in this tree; the tree must be sound. */
bool pk_tree_has(const struct pk_tree *t, const struct pk_node *node);
/* True when links and balance are as they must be; for check.c. */
bool pk_tree_sound(const struct pk_tree *t);

#endif
