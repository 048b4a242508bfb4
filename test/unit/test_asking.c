/* SPDX-License-Identifier: MIT */
/* Nodes that ask each other who they are, before they belong together. */
#include "nodes.h"

struct heard {
    unsigned calls;
    bool told;
    struct pk_tell tell;
    char why[512];
};

static void on_told(void *ctx, const struct pk_tell *tell, const char *why)
{
    struct heard *h = ctx;
    h->calls++;
    h->told = tell != NULL;
    CHECK((tell == NULL) == (why != NULL));
    if (tell != NULL) {
        h->tell = *tell;
    } else {
        (void)snprintf(h->why, sizeof h->why, "%s", why);
    }
}

static bool has_heard(void *h)
{
    return ((struct heard *)h)->calls > 0;
}

/* Asks from node `n` whoever is there. */
static struct heard asked(struct node *n, const char *where)
{
    struct heard h = {0};
    pk_transport_ask(pk_uvio_transport(n->uvio), where, on_told, &h);
    CHECK_U64(h.calls, 0); /* never from inside */
    run_until(has_heard, &h);
    CHECK_U64(h.calls, 1);
    return h;
}

static const char *port_of(uint16_t port)
{
    static char where[64];
    (void)snprintf(where, sizeof where, "127.0.0.1:%u", (unsigned)port);
    return where;
}

/* A node with an id and nothing else. */
static struct node *waiting_node(void)
{
    struct node *w = &nodes[1];
    node_open(w, "w", "127.0.0.1", 0);
    w->self.cluster = 0;
    CHECK(pk_transport_set_address(pk_uvio_transport(w->uvio), w->address));
    return w;
}

TEST(asking__a_node_without_a_cluster_is_told_who_is_there)
{
    struct node *n = lone_node();
    struct node *w = waiting_node();
    struct heard h = asked(w, port_of(pk_uvio_port(n->uvio)));
    CHECK(h.told);
    CHECK_U64(h.tell.cluster, CLUSTER);
    CHECK_U64(h.tell.id, n->self.id);
    CHECK_STR(h.tell.name, "n1");
    CHECK_U64(h.tell.n_members, 1);
    CHECK_U64(h.tell.members[0].id, n->self.id);
    CHECK_STR(h.tell.members[0].address, n->address);
    CHECK(h.tell.members[0].role == PK_MEMBER_VOTER);
    CHECK_U64(n->refusals, 0);
    nodes_end();
}

/* Before it has started, and when it belongs to no cluster. */
TEST(asking__a_waiting_node_answers_too)
{
    struct node *n = lone_node();
    struct node *w = waiting_node();
    struct heard h = asked(n, port_of(pk_uvio_port(w->uvio)));
    CHECK(h.told);
    CHECK_U64(h.tell.cluster, 0);
    CHECK_U64(h.tell.id, w->self.id);
    CHECK_U64(h.tell.n_members, 0);
    struct plug p = plug_into(pk_uvio_port(w->uvio));
    struct pk_greeting g = hello_of("n1", w);
    struct pk_greeting answer = ask(&p, &g);
    CHECK(answer.kind == PK_REFUSAL);
    CHECK_STR(answer.why, "node w belongs to no cluster yet");
    plug_pull(&p);
    nodes_end();
}

TEST(asking__whoever_could_join_is_remembered)
{
    struct pk_waiting waiting[PK_WAITING_NODES_MAX];
    struct node *n = lone_node();
    struct node *w = waiting_node();
    struct pk_transport *t = pk_uvio_transport(n->uvio);
    CHECK_U64(pk_transport_waiting(t, waiting, PK_WAITING_NODES_MAX), 0);
    (void)asked(w, port_of(pk_uvio_port(n->uvio)));
    (void)asked(w, port_of(pk_uvio_port(n->uvio)));
    CHECK_U64(pk_transport_waiting(t, waiting, PK_WAITING_NODES_MAX), 1);
    CHECK_U64(waiting[0].id, w->self.id);
    CHECK_STR(waiting[0].name, "w");
    CHECK_STR(waiting[0].host, strchr(w->address, '@') + 1);
    CHECK(waiting[0].silent_ms < PATIENCE_MS);
    w->self.cluster = CLUSTER + 1; /* it can't join: it belongs elsewhere */
    w->self.id++;
    CHECK(asked(w, port_of(pk_uvio_port(n->uvio))).told);
    w->self.id = n->self.id; /* a member asks */
    w->self.cluster = 0;
    CHECK(asked(w, port_of(pk_uvio_port(n->uvio))).told);
    CHECK_U64(pk_transport_waiting(t, waiting, PK_WAITING_NODES_MAX), 1);
    CHECK_U64(pk_transport_waiting(t, waiting, 0), 0);
    nodes_end();
}

TEST(asking__those_who_wait_are_bounded)
{
    struct pk_waiting waiting[PK_WAITING_NODES_MAX + 1];
    struct node *n = lone_node();
    struct node *w = waiting_node();
    uint64_t first = w->self.id;
    for (unsigned i = 0; i < PK_WAITING_NODES_MAX + 3; i++) {
        w->self.id = first + i;
        (void)asked(w, port_of(pk_uvio_port(n->uvio)));
        run_for(2); /* so that one is the oldest */
    }
    struct pk_transport *t = pk_uvio_transport(n->uvio);
    size_t count = pk_transport_waiting(t, waiting, PK_WAITING_NODES_MAX + 1);
    CHECK_U64(count, PK_WAITING_NODES_MAX);
    for (size_t i = 0; i < count; i++) {
        CHECK(waiting[i].id >= first + 3); /* the newest are there */
    }
    nodes_end();
}

TEST(asking__comes_to_an_end_without_an_answer)
{
    nodes_fresh();
    struct node *w = waiting_node();
    struct door shut = door_make(true), mute = door_make(false);
    CHECK_STR(asked(w, port_of(shut.port)).why, "it can't be connected to");
    CHECK_STR(asked(w, port_of(mute.port)).why, "no answer came in time");
    CHECK_STR(asked(w, "nowhere").why, "it is not HOST:PORT");
    struct heard h = {0};
    pk_transport_ask(pk_uvio_transport(w->uvio), port_of(mute.port), on_told, &h);
    node_end(w); /* closes meanwhile */
    run_until(has_heard, &h);
    CHECK(!h.told);
    CHECK_U64(h.calls, 1);
    (void)close(shut.fd);
    (void)close(mute.fd);
    nodes_end();
}

/* An answer that is none, and a refusal. */
TEST(asking__other_answers_are_said_in_words)
{
    nodes_fresh();
    struct node *w = waiting_node();
    struct door d = door_make(false);
    struct pk_greeting answers[] = {{.kind = PK_REFUSAL, .why = "go away"},
                                    welcome_of("n2", w)};
    static const char *const words[] = {"go away", "a tell was expected"};
    for (size_t i = 0; i < 2; i++) {
        struct heard h = {0};
        pk_transport_ask(pk_uvio_transport(w->uvio), port_of(d.port), on_told, &h);
        run_until(has_caller, &d);
        run_until(is_answered, &d.caller);
        plug_greet(&d.caller, &answers[i]);
        run_until(has_heard, &h);
        CHECK_STR(h.why, words[i]);
        plug_pull(&d.caller);
    }
    (void)close(d.fd);
    nodes_end();
}
