/* SPDX-License-Identifier: MIT */
/* The tree against a sorted array: the same answers, and sound after every operation. */
#include "core/tree.h"

#include "tap.h"

enum { KEYS = 160, ROUNDS = 20000 };

struct item {
    struct pk_node node;
    unsigned key;
    bool in;
};

static struct item items[KEYS];
static struct pk_tree tree;
static uint64_t state;

static unsigned below(unsigned n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (unsigned)(state >> 33) % n;
}

static int order(const void *key, const struct pk_node *node)
{
    unsigned a = *(const unsigned *)key;
    unsigned b = PK_OWNER(node, struct item, node)->key;
    return (a > b) - (a < b);
}

static void start(uint64_t seed)
{
    state = seed;
    tree = (struct pk_tree){0};
    for (unsigned i = 0; i < KEYS; i++) {
        items[i] = (struct item){.key = i};
    }
}

static void put(unsigned key)
{
    bool was_in = items[key].in;
    CHECK(pk_tree_insert(&tree, &items[key].node, &key, order) == !was_in);
    items[key].in = true;
}

static void take(unsigned key)
{
    pk_tree_erase(&tree, &items[key].node);
    items[key].in = false;
}

/* The item that `node` belongs to must be `want`; KEYS stands for none. */
static void check_node(const struct pk_node *node, unsigned want)
{
    if (want == KEYS) {
        CHECK(node == NULL);
    } else {
        CHECK(node == &items[want].node);
    }
}

/* The first key from `from` on that is in, or KEYS. */
static unsigned next_in(unsigned from)
{
    while (from < KEYS && !items[from].in) {
        from++;
    }
    return from;
}

static void check_all(void)
{
    CHECK(pk_tree_sound(&tree));
    struct pk_node *n = pk_tree_first(&tree);
    unsigned last = KEYS;
    for (unsigned key = next_in(0); key < KEYS; key = next_in(key + 1)) {
        check_node(n, key);
        n = pk_tree_next(n);
        last = key;
    }
    CHECK(n == NULL);
    check_node(pk_tree_last(&tree), last);
}

static void check_key(unsigned key)
{
    check_node(pk_tree_find(&tree, &key, order), items[key].in ? key : KEYS);
    check_node(pk_tree_seek(&tree, &key, order), next_in(key));
    if (items[key].in) {
        CHECK(pk_tree_has(&tree, &items[key].node));
    }
}

TEST(tree__empty_has_nothing)
{
    unsigned key = 1;
    start(1);
    CHECK(pk_tree_sound(&tree));
    CHECK(pk_tree_first(&tree) == NULL);
    CHECK(pk_tree_last(&tree) == NULL);
    CHECK(pk_tree_find(&tree, &key, order) == NULL);
    CHECK(pk_tree_seek(&tree, &key, order) == NULL);
}

TEST(tree__random_inserts_and_erases)
{
    start(42);
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* Waves: it fills up, then empties, so that every height is met both ways. */
        bool grow = below(100) < (i / 2000 % 2 == 0 ? 70U : 30U);
        unsigned key = below(KEYS);
        if (grow) {
            struct item twin = {.key = key};
            if (items[key].in) { /* an equal one is refused and changes nothing */
                CHECK(!pk_tree_insert(&tree, &twin.node, &key, order));
            } else {
                put(key);
            }
        } else if (items[key].in) {
            take(key);
        }
        check_all();
        check_key(below(KEYS));
    }
}

TEST(tree__ascending_descending_and_inside_out)
{
    for (unsigned way = 0; way < 3; way++) {
        start(way);
        for (unsigned i = 0; i < KEYS; i++) {
            unsigned middle = i % 2 == 0 ? KEYS / 2 + i / 2 : KEYS / 2 - 1 - i / 2;
            put(way == 0 ? i : way == 1 ? KEYS - 1 - i : middle);
            check_all();
        }
        for (unsigned i = 0; i < KEYS; i++) {
            take(way == 0 ? KEYS - 1 - i : i);
            check_all();
        }
    }
}

TEST(tree__the_node_just_left_may_be_erased)
{
    start(7);
    for (unsigned i = 0; i < KEYS; i++) {
        put(i);
    }
    unsigned seen = 0;
    struct pk_node *n = pk_tree_first(&tree);
    while (n != NULL) {
        struct item *left = PK_OWNER(n, struct item, node);
        CHECK_U64(left->key, seen);
        n = pk_tree_next(n);
        if (seen % 3 != 0) {
            take(left->key);
            CHECK(pk_tree_sound(&tree));
        }
        seen++;
    }
    CHECK_U64(seen, KEYS);
}

TEST(tree__soundness_sees_damage)
{
    start(9);
    for (unsigned i = 0; i < 31; i++) {
        put(i);
    }
    CHECK(pk_tree_sound(&tree));
    struct pk_node *leaf = pk_tree_first(&tree);
    uintptr_t up = leaf->up;
    leaf->up ^= 2; /* a balance that is not so */
    CHECK(!pk_tree_sound(&tree));
    leaf->up = up;
    struct pk_node *child = tree.root->child[0];
    tree.root->child[0] = tree.root->child[1]; /* a child with another parent's link */
    tree.root->child[1] = child;
    child->up = (uintptr_t)leaf | (child->up & 3);
    CHECK(!pk_tree_sound(&tree));
}
