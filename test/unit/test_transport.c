/* SPDX-License-Identifier: MIT */
/* Strangers, liars and the confused at a node's door; and doors that a node knocks at. */
#include <netinet/tcp.h>

#include "core/door.h"
#include "nodes.h"
#include "raft/message.h"

enum { FLOOD = 200 };

/* Says `g` to the node, wants a refusal with these words, and the connection ended. */
static void is_refused(struct node *n, const struct pk_greeting *g, const char *words)
{
    uint64_t before = pk_uvio_counts(n->uvio).refused;
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    struct pk_greeting answer = ask(&p, g);
    CHECK(answer.kind == PK_REFUSAL);
    if (strstr(answer.why, words) == NULL) {
        CHECK_STR(answer.why, words);
    }
    run_until(is_ended, &p);
    plug_pull(&p);
    CHECK_U64(pk_uvio_counts(n->uvio).refused, before + 1);
}

/* Says hello as a node called `name`, and is welcome. */
static struct plug welcome(struct node *n, const char *name)
{
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    struct pk_greeting g = hello_of(name, n);
    struct pk_greeting answer = ask(&p, &g);
    CHECK(answer.kind == PK_WELCOME);
    CHECK_U64(answer.cluster, CLUSTER);
    CHECK_U64(answer.to, g.from.id);
    CHECK_U64(answer.from.id, n->self.id);
    CHECK_STR(answer.from.name, n->self.name);
    CHECK_STR(answer.from.client, "127.0.0.1:1");
    CHECK_STR(answer.address, n->address);
    p.have = 0;
    return p;
}

/* All is still well with a node that was bothered. */
static void still_serves(struct node *n)
{
    struct plug p = welcome(n, "wellwisher");
    plug_pull(&p);
    commit(10);
}

/* ---- answering ---- */

TEST(transport__a_node_is_welcome_and_remembered)
{
    struct node *n = lone_node();
    struct plug p = welcome(n, "n2");
    CHECK(pk_peers_find(&n->peers, identity_of("n2").id) != NULL);
    CHECK_U64(pk_uvio_counts(n->uvio).handshakes, 1);
    CHECK_U64(n->refusals, 0);
    plug_pull(&p);
    nodes_end();
}

/* The node's end of our connection: it is in this process too. */
static int other_end(const struct plug *p)
{
    struct sockaddr_in ours, far;
    socklen_t size = sizeof ours;
    CHECK(getsockname(p->fd, (struct sockaddr *)&ours, &size) == 0);
    for (int fd = 0; fd < 1024; fd++) {
        size = sizeof far;
        if (getpeername(fd, (struct sockaddr *)&far, &size) == 0 &&
            far.sin_family == AF_INET && far.sin_port == ours.sin_port) {
            return fd;
        }
    }
    return -1;
}

static int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    CHECK(getsockopt(fd, level, option, &value, &size) == 0);
    return value;
}

/* Small messages leave at once, and a dead link is noticed. */
TEST(transport__links_are_quick_and_dont_outlive_their_node)
{
    struct node *n = lone_node();
    struct plug p = welcome(n, "n2");
    int fd = other_end(&p);
    CHECK(fd >= 0);
    CHECK(option_of(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    CHECK(option_of(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
    CHECK_U64(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 1);
    CHECK_U64(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), PK_PEER_SILENCE_MS);
    plug_pull(&p);
    nodes_end();
}

TEST(transport__another_cluster_is_refused)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n2", n);
    g.cluster++;
    is_refused(n, &g, "the clusters differ");
    CHECK(pk_peers_find(&n->peers, g.from.id) == NULL);
    CHECK_STR(n->why, "the clusters differ");
    CHECK_STR(n->peer, "127.0.0.1"); /* what it calls itself means nothing here */
    still_serves(n);
    nodes_end();
}

TEST(transport__whoever_wants_another_node_is_refused)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n2", n);
    g.to++;
    is_refused(n, &g, "node n1 here has id");
    is_refused(n, &g, "it was replaced or wiped");
    CHECK_STR(n->peer, "n2");
    still_serves(n);
    nodes_end();
}

TEST(transport__a_node_of_the_same_name_is_refused)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n1", n);
    is_refused(n, &g, "both nodes are called n1");
    nodes_end();
}

/* A node of our name is not another one, whatever its id. */
TEST(transport__a_node_of_our_name_or_id_is_refused)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n1", n);
    g.from.id++;
    is_refused(n, &g, "both nodes are called n1");
    g = hello_of("n2", n);
    g.from.id = n->self.id;
    is_refused(n, &g, "both nodes are called n1");
    nodes_end();
}

TEST(transport__a_refusal_is_told_once_until_all_was_well)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n2", n);
    g.to++;
    for (int i = 0; i < 5; i++) {
        is_refused(n, &g, "another was dialled");
    }
    CHECK_U64(n->refusals, 1);
    struct plug p = welcome(n, "n2");
    plug_pull(&p);
    is_refused(n, &g, "another was dialled");
    CHECK_U64(n->refusals, 2);
    nodes_end();
}

/* By a node that knows the cluster version: its leader. */
TEST(transport__a_release_without_the_cluster_version_is_refused)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n2", n);
    struct pk_release heard;
    g.release = (struct pk_release){.name = "0.0.9", .oldest = 2, .newest = 3};
    n->version = 4;
    is_refused(n, &g,
               "the cluster has version 4, and node n2 has picket 0.0.9, which runs "
               "cluster versions 2 to 3; install a newer picket there");
    n->version = 1;
    is_refused(n, &g, "install an older picket there");
    CHECK(!pk_transport_release(pk_uvio_transport(n->uvio), g.from.id, &heard));
    n->version = 0; /* a follower does not judge: it may not have heard of a change */
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    CHECK(ask(&p, &g).kind == PK_WELCOME);
    CHECK(pk_transport_release(pk_uvio_transport(n->uvio), g.from.id, &heard));
    CHECK_STR(heard.name, "0.0.9");
    CHECK_U64(heard.oldest, 2);
    CHECK_U64(heard.newest, 3);
    plug_pull(&p);
    nodes_end();
}

TEST(transport__another_version_is_refused_in_words)
{
    struct node *n = lone_node();
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting g = hello_of("n2", n), answer;
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    size_t len = pk_greeting_encode(&g, bytes);
    bytes[4]++;
    plug_write(&p, bytes, len);
    run_until(is_ended, &p);
    CHECK(pk_greeting_decode(p.in, p.have, &answer) == PK_GREETING_WHOLE);
    CHECK_STR(answer.why,
              "the greeting of the other node has format version 2; this build "
              "reads 1; install a newer picket");
    plug_pull(&p);
    nodes_end();
}

TEST(transport__garbage_is_refused)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n",
                                          "*1\r\n$4\r\nPING\r\n", "PKHI\2\7\1\1", "\1"};
    struct node *n = lone_node();
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        struct plug p = plug_into(pk_uvio_port(n->uvio));
        plug_write(&p, garbage[i], strlen(garbage[i]));
        run_until(is_ended, &p);
        plug_pull(&p);
    }
    CHECK_U64(pk_uvio_counts(n->uvio).refused, sizeof garbage / sizeof garbage[0]);
    still_serves(n);
    nodes_end();
}

/* Nobody speaks before it was answered. */
TEST(transport__bytes_behind_a_hello_are_refused)
{
    struct node *n = lone_node();
    unsigned char bytes[PK_GREETING_MAX + 1] = {0};
    struct pk_greeting g = hello_of("n2", n);
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    size_t len = pk_greeting_encode(&g, bytes);
    plug_write(&p, bytes, len + 1);
    run_until(is_ended, &p);
    CHECK_U64(pk_uvio_counts(n->uvio).refused, 1);
    CHECK_U64(pk_uvio_counts(n->uvio).handshakes, 0);
    plug_pull(&p);
    nodes_end();
}

TEST(transport__whoever_is_slow_is_not_waited_for)
{
    struct node *n = lone_node();
    struct plug mute = plug_into(pk_uvio_port(n->uvio));
    struct plug slow = plug_into(pk_uvio_port(n->uvio));
    plug_write(&slow, "PKHI", 4);
    run_until(is_ended, &mute);
    run_until(is_ended, &slow);
    plug_pull(&mute);
    plug_pull(&slow);
    still_serves(n);
    nodes_end();
}

/* In small pieces it takes longer, but it arrives. */
TEST(transport__a_hello_may_come_byte_by_byte)
{
    struct node *n = lone_node();
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting g = hello_of("n2", n);
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    size_t len = pk_greeting_encode(&g, bytes);
    for (size_t i = 0; i < len; i++) {
        plug_write(&p, bytes + i, 1);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    run_until(is_answered, &p);
    CHECK_U64(pk_uvio_counts(n->uvio).handshakes, 1);
    plug_pull(&p);
    nodes_end();
}

static struct plug flood[FLOOD];

static bool is_thinned_out(void *unused)
{
    (void)unused;
    unsigned alive = 0;
    for (size_t i = 0; i < FLOOD; i++) {
        plug_look(&flood[i]);
        alive += !flood[i].ended;
    }
    return alive <= PK_STRANGERS_MAX;
}

TEST(transport__strangers_are_bounded_and_dont_keep_nodes_out)
{
    struct node *n = lone_node();
    unsigned before = open_sockets();
    for (size_t i = 0; i < FLOOD; i++) {
        flood[i] = plug_into(pk_uvio_port(n->uvio));
        uv_run(&loop, UV_RUN_NOWAIT);
        CHECK(open_sockets() <= before + i + 1 + PK_STRANGERS_MAX + 1);
    }
    run_until(is_thinned_out, NULL);
    still_serves(n); /* with as many strangers at the door as there may be */
    for (size_t i = 0; i < FLOOD; i++) {
        run_until(is_ended, &flood[i]);
        plug_pull(&flood[i]);
    }
    CHECK_U64(open_sockets(), before);
    nodes_end();
}

/* When the door is full, the oldest stranger goes: a node that has just come has time
 * for its hello. */
TEST(transport__strangers_that_come_later_dont_push_a_node_out)
{
    struct node *n = lone_node();
    for (size_t i = 0; i < PK_STRANGERS_MAX; i++) {
        flood[i] = plug_into(pk_uvio_port(n->uvio));
    }
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    run_until(is_ended, &flood[0]);
    flood[PK_STRANGERS_MAX] = plug_into(pk_uvio_port(n->uvio));
    run_until(is_ended, &flood[1]);
    struct pk_greeting g = hello_of("n2", n);
    struct pk_greeting answer = ask(&p, &g);
    CHECK(answer.kind == PK_WELCOME);
    plug_pull(&p);
    for (size_t i = 0; i <= PK_STRANGERS_MAX; i++) {
        plug_pull(&flood[i]);
    }
    nodes_end();
}

/* ---- links ---- */

TEST(transport__a_node_has_one_link)
{
    struct node *n = lone_node();
    unsigned before = open_sockets();
    struct plug first = welcome(n, "n2");
    for (int i = 0; i < 5; i++) {
        struct plug second = welcome(n, "n2");
        run_until(is_ended, &first);
        plug_pull(&first);
        first = second;
    }
    run_for(10);
    CHECK_U64(open_sockets(), before + 2);
    plug_pull(&first);
    nodes_end();
}

/* A copied data directory is two nodes with one vote. */
TEST(transport__the_second_process_of_a_node_is_refused)
{
    struct node *n = lone_node();
    struct pk_greeting g = hello_of("n2", n);
    struct plug first = welcome(n, "n2");
    g.run++;
    is_refused(n, &g, "are there two copies of its data directory?");
    plug_look(&first);
    CHECK(!first.ended);
    plug_pull(&first);
    run_for(10);
    struct plug p = plug_into(pk_uvio_port(n->uvio));
    CHECK(ask(&p, &g).kind == PK_WELCOME); /* the first is gone */
    plug_pull(&p);
    nodes_end();
}

/* Lengths that nobody has memory for, no message at all: each ends the link, none the
 * node. */
TEST(transport__messages_beyond_bounds_end_the_link)
{
    static const struct {
        unsigned char type;
        uint32_t header;
        uint64_t payload;
    } bad[] = {
        {RAFT_APPEND_ENTRIES, UINT32_MAX, 0},
        {RAFT_REQUEST_VOTE, 1 << 30, 0},
        {RAFT_APPEND_ENTRIES, 56, UINT64_C(1) << 32},
        {RAFT_INSTALL_SNAPSHOT, 64, UINT64_MAX},
        {RAFT_INSTALL_SNAPSHOT, 1 << 20, 8},
        {99, 8, 0},
        {0, 0, 0},
    };
    struct node *n = lone_node();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned char bytes[PK_MESSAGE_FRAME] = {bad[i].type, PK_MESSAGE_VERSION};
        for (unsigned k = 0; k < 4; k++) {
            bytes[4 + k] = (unsigned char)(bad[i].header >> 8 * k);
        }
        pk_put_u64(bytes + 8, bad[i].payload);
        struct plug p = welcome(n, "n2");
        plug_write(&p, bytes, sizeof bytes);
        run_until(is_ended, &p);
        plug_pull(&p);
        CHECK_U64(pk_uvio_counts(n->uvio).frames_refused, i + 1);
        CHECK_STR(n->peer, "n2");
    }
    still_serves(n);
    nodes_end();
}

/* A request for a vote, which a node that leads and hears its own voters ignores. */
static size_t vote_of(uint64_t from, unsigned char *out)
{
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    m.request_vote = (struct raft_request_vote){.version = 2,
                                                .term = 1,
                                                .candidate_id = from,
                                                .last_log_index = 1,
                                                .last_log_term = 1,
                                                .pre_vote = true};
    struct pk_encoded *e = pk_message_encode(&m, from);
    size_t len = e->parts[0].len;
    memcpy(out, e->parts[0].base, len);
    pk_door_resize(e, 0);
    return len;
}

/* The same stream in one piece and in single bytes. */
TEST(transport__messages_may_come_in_any_pieces)
{
    struct node *n = lone_node();
    unsigned char bytes[128];
    struct plug p = welcome(n, "n2");
    size_t len = vote_of(hello_of("n2", n).from.id, bytes);
    plug_write(&p, bytes, len);
    for (size_t i = 0; i < len; i++) {
        plug_write(&p, bytes + i, 1);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    run_for(20);
    plug_look(&p);
    CHECK(!p.ended);
    CHECK_U64(pk_uvio_counts(n->uvio).frames_refused, 0);
    plug_pull(&p);
    still_serves(n);
    nodes_end();
}

/* Who has said hello as one node can't vote as another. */
TEST(transport__a_message_of_another_node_ends_the_link)
{
    struct node *n = lone_node();
    unsigned char bytes[128];
    struct plug p = welcome(n, "n2");
    size_t len = vote_of(hello_of("n3", n).from.id, bytes);
    plug_write(&p, bytes, len);
    run_until(is_ended, &p);
    plug_pull(&p);
    CHECK_U64(pk_uvio_counts(n->uvio).frames_refused, 1);
    CHECK_STR(n->why, "a message is of another node than its connection");
    still_serves(n);
    nodes_end();
}

/* ---- dialling ---- */

/* The hello of the next who calls. */
static struct pk_greeting next_caller(struct door *d)
{
    struct pk_greeting g;
    run_until(has_caller, d);
    run_until(is_answered, &d->caller);
    CHECK(pk_greeting_decode(d->caller.in, d->caller.have, &g) == PK_GREETING_WHOLE);
    CHECK(g.kind == PK_HELLO);
    d->caller.have = 0;
    return g;
}

/* A node that has n2 in its configuration and looks for it behind the door. */
static struct node *caller_to(struct door *d, const char *host)
{
    struct node *n = &nodes[0];
    char address[PK_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "n2@%s:%u", host, (unsigned)d->port);
    node_open(n, "n1", "127.0.0.1", 0);
    struct pk_member members[2] = {member_of(n->address), member_of(address)};
    CHECK_STR(node_start(n, members, 2), NULL);
    return n;
}

static bool has_refusal(void *n)
{
    return ((struct node *)n)->refusals > 0;
}

/* Answers the next caller; the node tells why it won't have that, and comes again. */
static void answer_is_refused(struct node *n, struct door *d, struct pk_greeting answer,
                              const char *words)
{
    char peer[PK_ADDRESS_MAX];
    (void)snprintf(peer, sizeof peer, "n2@127.0.0.1:%u", (unsigned)d->port);
    (void)next_caller(d);
    n->refusals = 0;
    plug_greet(&d->caller, &answer);
    run_until(has_refusal, n);
    if (strstr(n->why, words) == NULL) {
        CHECK_STR(n->why, words);
    }
    CHECK_STR(n->peer, peer);
    run_until(is_ended, &d->caller);
    plug_pull(&d->caller);
}

static bool has_message(void *ctx)
{
    struct plug *p = ctx;
    plug_look(p);
    return p->have >= 16;
}

/* The answer is right: the caller goes on to ask for a vote. */
static void answer_is_taken(struct node *n, struct door *d)
{
    struct pk_greeting hello = next_caller(d);
    CHECK_U64(hello.cluster, CLUSTER);
    CHECK_U64(hello.to, identity_of("n2").id);
    CHECK_STR(hello.address, n->address);
    struct pk_greeting answer = welcome_of("n2", n);
    plug_greet(&d->caller, &answer);
    run_until(has_message, &d->caller);
    CHECK_U64(d->caller.in[0], 3);
    CHECK(pk_peers_find(&n->peers, identity_of("n2").id) != NULL);
}

static void caller_ends(struct door *d)
{
    plug_pull(&d->caller);
    (void)close(d->fd);
    nodes_end();
}

TEST(transport__the_right_answer_is_taken)
{
    nodes_fresh();
    struct door d = door_make(false);
    struct node *n = caller_to(&d, "127.0.0.1");
    answer_is_taken(n, &d);
    CHECK_U64(n->refusals, 0);
    caller_ends(&d);
}

TEST(transport__names_are_looked_up)
{
    nodes_fresh();
    struct door d = door_make(false);
    struct node *n = caller_to(&d, "localhost");
    answer_is_taken(n, &d);
    caller_ends(&d);
}

TEST(transport__wrong_answers_are_refused_until_the_right_one_comes)
{
    nodes_fresh();
    struct door d = door_make(false);
    struct node *n = caller_to(&d, "127.0.0.1");
    struct pk_greeting g = welcome_of("n3", n);
    answer_is_refused(n, &d, g, "node n3 there has id");
    CHECK(pk_peers_find(&n->peers, g.from.id) == NULL);
    g = welcome_of("n2", n);
    g.cluster++;
    answer_is_refused(n, &d, g, "the clusters differ");
    g = welcome_of("n2", n);
    g.to++;
    answer_is_refused(n, &d, g, "another was dialled");
    g.kind = PK_HELLO;
    answer_is_refused(n, &d, g, "a welcome was expected");
    answer_is_refused(n, &d, (struct pk_greeting){.kind = PK_REFUSAL, .why = "go away"},
                      "it refuses this node: go away");
    answer_is_taken(n, &d);
    caller_ends(&d);
}

TEST(transport__a_node_that_is_not_there_yet_is_found_when_it_comes)
{
    nodes_fresh();
    struct door d = door_make(true);
    struct node *n = caller_to(&d, "127.0.0.1");
    run_for(200); /* refused by the kernel, again and again */
    CHECK_U64(n->refusals, 0);
    CHECK(listen(d.fd, 8) == 0);
    answer_is_taken(n, &d);
    caller_ends(&d);
}

TEST(transport__silence_is_given_up_and_tried_again)
{
    nodes_fresh();
    struct door d = door_make(false);
    struct node *n = caller_to(&d, "127.0.0.1");
    (void)next_caller(&d);
    run_until(is_ended, &d.caller);
    plug_pull(&d.caller);
    answer_is_taken(n, &d);
    caller_ends(&d);
}

/* In each state of dialling; nodes_end wants one call back, and no handle left. */
TEST(transport__closes_whatever_it_is_doing)
{
    nodes_fresh();
    struct door d = door_make(false);
    (void)caller_to(&d, "127.0.0.1");
    nodes_end(); /* has begun to connect, perhaps */
    (void)close(d.fd);

    nodes_fresh();
    d = door_make(false);
    (void)caller_to(&d, "127.0.0.1");
    (void)next_caller(&d); /* waits for an answer */
    struct plug mute = plug_into(pk_uvio_port(nodes[0].uvio));
    run_for(1); /* a stranger is there too */
    caller_ends(&d);
    plug_pull(&mute);

    nodes_fresh();
    d = door_make(false);
    (void)caller_to(&d, "name.invalid"); /* waits for the resolver */
    run_for(1);
    node_end(&nodes[0]);
    (void)close(d.fd);
    while (uv_loop_alive(&loop)) {
        uv_run(&loop, UV_RUN_ONCE); /* which can't always be called off */
    }
    nodes_end();
}

/* ---- opening ---- */

TEST(transport__a_taken_port_is_an_error_at_start)
{
    struct node *n = lone_node();
    struct pk_uvio_options o = {.loop = &loop,
                                .dir = n->dir,
                                .listen = n->listen,
                                .self = &n->self,
                                .peers = &n->peers};
    (void)snprintf(n->listen, sizeof n->listen, "127.0.0.1:%u",
                   (unsigned)pk_uvio_port(n->uvio));
    CHECK(pk_uvio_new(&o, n->why, sizeof n->why) == NULL);
    CHECK(strstr(n->why, "can't listen for other nodes on 127.0.0.1:") != NULL);
    CHECK(strstr(n->why, "address already in use") != NULL);
    static const char *const wrong[] = {
        "7000", "127.0.0.1", "127.0.0.1:", "a:1:2", "h:99999", "h:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        o.listen = wrong[i];
        CHECK(pk_uvio_new(&o, n->why, sizeof n->why) == NULL);
    }
    nodes_end();
}
