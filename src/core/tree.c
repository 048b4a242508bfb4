/* SPDX-License-Identifier: MIT */
#include "core/tree.h"

#include "core/door.h"

/* Side 0 is left, side 1 right. A node's balance is height(right) - height(left): -1, 0
 * or 1. */

static struct pk_node *parent_of(const struct pk_node *n)
{
    return (struct pk_node *)(n->up & ~(uintptr_t)3);
}

static int balance_of(const struct pk_node *n)
{
    return (int)(n->up & 3) - 1;
}

static void set_parent(struct pk_node *n, struct pk_node *parent)
{
    n->up = (uintptr_t)parent | (n->up & 3);
}

static void set_balance(struct pk_node *n, int balance)
{
    PK_ASSERT(balance >= -1 && balance <= 1);
    n->up = (n->up & ~(uintptr_t)3) | (uintptr_t)(balance + 1);
}

static int side_of(const struct pk_node *parent, const struct pk_node *n)
{
    return parent->child[1] == n;
}

/* Makes `to` stand where `from` stood under its parent. */
static void replace_child(struct pk_tree *t, struct pk_node *parent, struct pk_node *from,
                          struct pk_node *to)
{
    if (parent == NULL) {
        t->root = to;
    } else {
        parent->child[side_of(parent, from)] = to;
    }
    if (to != NULL) {
        set_parent(to, parent);
    }
}

/* Rotates `n` down towards `side`; its child on the other side comes up. Links only. */
static struct pk_node *rotate(struct pk_tree *t, struct pk_node *n, int side)
{
    struct pk_node *up = n->child[!side];
    struct pk_node *inner = up->child[side];
    replace_child(t, parent_of(n), n, up);
    up->child[side] = n;
    set_parent(n, up);
    n->child[!side] = inner;
    if (inner != NULL) {
        set_parent(inner, n);
    }
    return up;
}

/* Mends `n`, which is two higher on `side` than on the other. Returns the subtree's new
 * top. */
static struct pk_node *mend(struct pk_tree *t, struct pk_node *n, int side)
{
    int lean = side ? 1 : -1;
    struct pk_node *high = n->child[side];
    if (balance_of(high) == -lean) {
        struct pk_node *inner = high->child[!side];
        int b = balance_of(inner);
        rotate(t, high, side);
        rotate(t, n, !side);
        set_balance(n, b == lean ? -lean : 0);
        set_balance(high, b == -lean ? lean : 0);
        set_balance(inner, 0);
        return inner;
    }
    int even =
        balance_of(high) == 0; /* only when something was erased from the other side */
    rotate(t, n, !side);
    set_balance(n, even ? lean : 0);
    set_balance(high, even ? -lean : 0);
    return high;
}

struct pk_node *pk_tree_find(const struct pk_tree *t, const void *key,
                             pk_tree_order *order)
{
    struct pk_node *n = t->root;
    while (n != NULL) {
        int o = order(key, n);
        if (o == 0) {
            break;
        }
        n = n->child[o > 0];
    }
    return n;
}

struct pk_node *pk_tree_seek(const struct pk_tree *t, const void *key,
                             pk_tree_order *order)
{
    struct pk_node *best = NULL;
    struct pk_node *n = t->root;
    while (n != NULL) {
        int o = order(key, n);
        if (o <= 0) {
            best = n;
        }
        n = n->child[o > 0];
    }
    return best;
}

/* The subtree at `n` has grown by one: carry it upwards until it is absorbed. */
static void grown(struct pk_tree *t, struct pk_node *n)
{
    struct pk_node *parent = parent_of(n);
    while (parent != NULL) {
        int side = side_of(parent, n);
        int b = balance_of(parent) + (side ? 1 : -1);
        if (b < -1 || b > 1) {
            mend(t, parent, side);
            return;
        }
        set_balance(parent, b);
        if (b == 0) {
            return;
        }
        n = parent;
        parent = parent_of(n);
    }
}

bool pk_tree_insert(struct pk_tree *t, struct pk_node *node, const void *key,
                    pk_tree_order *order)
{
    struct pk_node *parent = NULL;
    struct pk_node **link = &t->root;
    while (*link != NULL) {
        int o = order(key, *link);
        if (o == 0) {
            return false;
        }
        parent = *link;
        link = &parent->child[o > 0];
    }
    node->child[0] = NULL;
    node->child[1] = NULL;
    node->up = (uintptr_t)parent | 1;
    *link = node;
    grown(t, node);
    return true;
}

/* The subtree on `side` of `parent` has shrunk by one: carry it upwards until it is
 * absorbed. */
static void shrunk(struct pk_tree *t, struct pk_node *parent, int side)
{
    while (parent != NULL) {
        struct pk_node *top = parent;
        struct pk_node *above = parent_of(parent);
        int above_side = above != NULL && side_of(above, parent);
        int b = balance_of(parent) - (side ? 1 : -1);
        if (b < -1 || b > 1) {
            top = mend(t, parent, !side);
        } else {
            set_balance(parent, b);
        }
        if (balance_of(top) != 0) {
            return; /* the height is what it was */
        }
        parent = above;
        side = above_side;
    }
}

void pk_tree_erase(struct pk_tree *t, struct pk_node *node)
{
    struct pk_node *parent = parent_of(node);
    if (node->child[0] == NULL || node->child[1] == NULL) {
        int side = parent != NULL && side_of(parent, node);
        replace_child(t, parent, node, node->child[node->child[0] == NULL]);
        shrunk(t, parent, side);
        return;
    }
    struct pk_node *heir = node->child[1];
    while (heir->child[0] != NULL) {
        heir = heir->child[0];
    }
    struct pk_node *from = parent_of(heir); /* the lowest node whose subtree shrinks */
    int side = 0;
    if (from == node) {
        from = heir;
        side = 1;
    } else {
        replace_child(t, from, heir, heir->child[1]);
        heir->child[1] = node->child[1];
        set_parent(heir->child[1], heir);
    }
    heir->child[0] = node->child[0];
    set_parent(heir->child[0], heir);
    set_balance(heir, balance_of(node));
    replace_child(t, parent, node, heir);
    shrunk(t, from, side);
}

struct pk_node *pk_tree_first(const struct pk_tree *t)
{
    struct pk_node *n = t->root;
    while (n != NULL && n->child[0] != NULL) {
        n = n->child[0];
    }
    return n;
}

struct pk_node *pk_tree_last(const struct pk_tree *t)
{
    struct pk_node *n = t->root;
    while (n != NULL && n->child[1] != NULL) {
        n = n->child[1];
    }
    return n;
}

struct pk_node *pk_tree_next(const struct pk_node *node)
{
    struct pk_node *n = node->child[1];
    if (n != NULL) {
        while (n->child[0] != NULL) {
            n = n->child[0];
        }
        return n;
    }
    n = parent_of(node);
    while (n != NULL && side_of(n, node)) {
        node = n;
        n = parent_of(n);
    }
    return n;
}

bool pk_tree_has(const struct pk_tree *t, const struct pk_node *node)
{
    while (parent_of(node) != NULL) {
        node = parent_of(node);
    }
    return node == t->root;
}

/* The height of the subtree along its taller side: balance tells which one that is. */
static int height_of(const struct pk_node *n)
{
    int height = 0;
    while (n != NULL) {
        height++;
        n = n->child[balance_of(n) > 0];
    }
    return height;
}

bool pk_tree_sound(const struct pk_tree *t)
{
    if (t->root != NULL && parent_of(t->root) != NULL) {
        return false;
    }
    for (struct pk_node *n = pk_tree_first(t); n != NULL; n = pk_tree_next(n)) {
        if ((n->up & 3) == 3) {
            return false;
        }
        for (int side = 0; side < 2; side++) {
            if (n->child[side] != NULL && parent_of(n->child[side]) != n) {
                return false;
            }
        }
        /* By induction from the leaves, which the walk covers too, each height is the
         * true one. */
        if (height_of(n->child[1]) - height_of(n->child[0]) != balance_of(n)) {
            return false;
        }
    }
    return true;
}
